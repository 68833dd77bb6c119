package twinlog.bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * One part of scripts/bench client, as client_load.py does it with twinlog.client.
 *
 * Arguments: part namesrv topic bodySize warmUpSeconds seconds number messages. One line of JSON.
 */
public final class ClientLoad {
    private static final long DRAIN_SECONDS_MAX = 120;

    private ClientLoad() {
    }

    public static void main(String[] args) throws Exception {
        String part = args[0];
        byte[] body = new byte[Integer.parseInt(args[3])];
        Arrays.fill(body, (byte) 'x');
        double messages = args[7].equals("inf") ? Double.POSITIVE_INFINITY : Double.parseDouble(args[7]);
        Meter meter = new Meter(Double.parseDouble(args[4]), Double.parseDouble(args[5]), messages);
        int number = Integer.parseInt(args[6]);
        if (part.equals("consume")) {
            consume(args[1], args[2], number, meter);
        } else {
            DefaultMQProducer producer = new DefaultMQProducer("bench-client");
            producer.setNamesrvAddr(args[1]);
            producer.setRetryTimesWhenSendFailed(0);
            producer.setRetryTimesWhenSendAsyncFailed(0);
            producer.setSendMsgTimeout(10_000);
            producer.start();
            send(part, producer, args[2], body, number, meter);
        }
        meter.over.await();
        System.out.println(meter.json());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void send(String part, DefaultMQProducer producer, String topic, byte[] body, int number, Meter meter) throws Exception {
        switch (part) {
            case "send":
                for (int i = 0; i < number; i++) {
                    new Thread(() -> oneByOne(producer, topic, body, meter)).start();
                }
                break;
            case "send-all":
                sendAll(producer, topic, body, number, meter);
                break;
            default:
                while (!meter.isOver()) {
                    List<Message> batch = new ArrayList<>();
                    for (int i = 0; i < number; i++) {
                        batch.add(new Message(topic, body));
                    }
                    check(producer.send(batch));
                    meter.note(number, 0);
                }
        }
    }

    private static void oneByOne(DefaultMQProducer producer, String topic, byte[] body, Meter meter) {
        try {
            while (!meter.isOver()) {
                long began = System.nanoTime();
                check(producer.send(new Message(topic, body)));
                meter.note(1, began);
            }
        } catch (Exception e) {
            failed(e);
        }
    }

    private static void sendAll(DefaultMQProducer producer, String topic, byte[] body, int number, Meter meter) throws Exception {
        Semaphore room = new Semaphore(number);
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                check(result);
                room.release();
                meter.note(1, 0);
            }

            @Override
            public void onException(Throwable error) {
                failed(error);
            }
        };
        while (!meter.isOver()) {
            room.acquire();
            producer.send(new Message(topic, body), callback);
        }
    }

    private static void consume(String namesrv, String topic, int batchMax, Meter meter) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench-" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(batchMax);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            meter.note(messages.size(), 0);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!meter.over.await(DRAIN_SECONDS_MAX, TimeUnit.SECONDS)) {
            failed(new IllegalStateException("messages did not come"));
        }
    }

    private static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            failed(new IllegalStateException(result.toString()));
        }
    }

    private static void failed(Throwable error) {
        System.err.println(error);
        Runtime.getRuntime().halt(1);
    }

    /** As client_meter.py counts. */
    private static final class Meter {
        private final CountDownLatch over = new CountDownLatch(1);
        private final long warmUpNanos;
        private final long nanos;
        private final double limit;
        private final long[] times = new long[500_000];
        private int timesCount;
        private long seen;
        private long count;
        private long first;
        private long started;
        private long cpu;
        private String result;

        Meter(double warmUpSeconds, double seconds, double limit) {
            this.warmUpNanos = (long) (warmUpSeconds * 1e9);
            this.nanos = (long) (seconds * 1e9);
            this.limit = limit;
        }

        boolean isOver() {
            return over.getCount() == 0;
        }

        synchronized void note(int number, long began) {
            long now = System.nanoTime();
            if (seen == 0) {
                first = now;
            }
            seen += number;
            if (isOver()) {
                return;
            }
            if (started == 0) {
                if (now - first >= warmUpNanos || seen >= limit / 3) {
                    started = now;
                    cpu = cpuNanos();
                }
                return;
            }
            count += number;
            if (began != 0 && timesCount < times.length) {
                times[timesCount++] = now - began;
            }
            if (now - started >= nanos || seen >= limit) {
                result = String.format("{\"messages\":%d,\"elapsed_s\":%.4f,\"client_cpu_s\":%.4f%s}", count, (now - started) / 1e9,
                    (cpuNanos() - cpu) / 1e9, latencies());
                over.countDown();
            }
        }

        private String latencies() {
            if (timesCount == 0) {
                return "";
            }
            Arrays.sort(times, 0, timesCount);
            return String.format(",\"p50_ms\":%.3f,\"p99_ms\":%.3f", times[timesCount / 2] / 1e6,
                times[Math.min(timesCount - 1, (int) (timesCount * 0.99))] / 1e6);
        }

        String json() {
            return result;
        }

        private static long cpuNanos() {
            return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
        }
    }
}
