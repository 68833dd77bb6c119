package twinlog.bench;

import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * How long a message takes from the call of send until a push consumer's listener has it, both in this JVM.
 *
 * Arguments: namesrv topic bodySize warmUps seconds rates... One line of JSON for each rate and each of the warm-ups, which are the
 * seconds since that rate began, such as 10,40: the measurements come one after the other, and messages between them. Messages leave
 * at times laid down beforehand, and time counts from then: a broker that stops for a moment is charged for all that had to wait.
 */
public final class LatencyLoad {
    private static final int FINE = 200_000;
    private static final long GRACE_NANOS = 10_000_000_000L;

    private LatencyLoad() {
    }

    public static void main(String[] args) throws Exception {
        AtomicLong got = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        int[] counts = new int[FINE + 20_000];
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench-latency");
        consumer.setNamesrvAddr(args[0]);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            synchronized (counts) {
                messages.forEach(message -> {
                    long micros = Math.max(0, now - ByteBuffer.wrap(message.getBody()).getLong()) / 1000;
                    counts[micros < FINE ? (int) micros : (int) Math.min(FINE + (micros - FINE) / 1000, counts.length - 1)]++;
                });
            }
            got.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("bench-latency-producer");
        producer.setNamesrvAddr(args[0]);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
            }

            @Override
            public void onException(Throwable error) {
                failed.incrementAndGet();
            }
        };
        Thread.sleep(3_000); // The consumer has its queues.
        for (int i = 5; i < args.length; i++) {
            int rate = Integer.parseInt(args[i]);
            int seconds = Integer.parseInt(args[4]);
            int end = 0;
            for (String warmUp : args[3].split(",")) {
                int start = Integer.parseInt(warmUp);
                send(producer, callback, args, rate, start - end, got, failed);
                synchronized (counts) {
                    java.util.Arrays.fill(counts, 0);
                }
                failed.set(0);
                System.out.printf("{\"event\":\"start\",\"rate\":%d,\"warm_up\":%d}%n", rate, start);
                long sent = send(producer, callback, args, rate, seconds, got, failed);
                synchronized (counts) {
                    String result = "{\"event\":\"end\",\"rate\":%d,\"warm_up\":%d,\"sent\":%d,\"failed\":%d,%s}%n";
                    System.out.printf(result, rate, start, sent, failed.get(), json(counts));
                }
                end = start + seconds;
            }
        }
        System.exit(0);
    }

    private static long send(
        DefaultMQProducer producer, SendCallback callback, String[] args, int rate, int seconds, AtomicLong got, AtomicLong failed
    ) throws Exception {
        long count = (long) rate * seconds;
        long before = got.get();
        long begin = System.nanoTime();
        for (long i = 0; i < count; i++) {
            long due = begin + i * 1_000_000_000L / rate;
            for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
            byte[] body = new byte[Integer.parseInt(args[2])];
            ByteBuffer.wrap(body).putLong(due);
            producer.send(new Message(args[1], body), callback);
        }
        long deadline = System.nanoTime() + GRACE_NANOS;
        while (got.get() - before < count - failed.get() && System.nanoTime() < deadline) {
            Thread.sleep(5);
        }
        return count;
    }

    private static String json(int[] counts) {
        long total = 0;
        for (int count : counts) {
            total += count;
        }
        return String.format("\"received\":%d,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"p999_ms\":%.3f,\"max_ms\":%.3f", total,
            percentile(counts, total, 0.5), percentile(counts, total, 0.99), percentile(counts, total, 0.999), percentile(counts, total, 1));
    }

    private static double percentile(int[] counts, long total, double share) {
        long left = (long) Math.ceil(total * share);
        for (int i = 0; i < counts.length; i++) {
            left -= counts[i];
            if (left <= 0) {
                return (i < FINE ? i : FINE + (i - FINE) * 1000L) / 1e3;
            }
        }
        return 0;
    }
}
