package twinlog.bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends messages in batches, one batch after the other.
 *
 * Arguments: namesrv topic bodySize messages batchBytes warmUpMessages. One line of JSON, of the messages behind the warm-up.
 */
public final class BatchLoad {
    private static final int PLACES = 997;
    private static final int MESSAGE_EXTRA = 100;

    private BatchLoad() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench-batches");
        producer.setNamesrvAddr(args[0]);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        int size = Integer.parseInt(args[2]);
        long messages = Long.parseLong(args[3]);
        int perBatch = Math.max(1, Integer.parseInt(args[4]) / (size + MESSAGE_EXTRA));
        byte[] pool = new byte[size + PLACES];
        new Random(size).nextBytes(pool);
        send(producer, args[1], pool, size, Long.parseLong(args[5]), perBatch);
        long began = System.nanoTime();
        long cpu = cpuNanos();
        send(producer, args[1], pool, size, messages, perBatch);
        double elapsed = (System.nanoTime() - began) / 1e9;
        System.out.printf("{\"messages\":%d,\"elapsed_s\":%.3f,\"client_cpu_s\":%.3f}%n", messages, elapsed,
            (cpuNanos() - cpu) / 1e9);
        System.out.flush();
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String topic, byte[] pool, int size, long messages, int perBatch)
        throws Exception {
        for (long first = 0; first < messages; first += perBatch) {
            List<Message> batch = new ArrayList<>();
            for (long n = first; n < Math.min(first + perBatch, messages); n++) {
                int at = (int) (n % PLACES);
                batch.add(new Message(topic, Arrays.copyOfRange(pool, at, at + size)));
            }
            SendStatus status = producer.send(batch, 10_000).getSendStatus();
            if (status != SendStatus.SEND_OK) {
                throw new IllegalStateException(status.name());
            }
        }
    }

    private static long cpuNanos() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
