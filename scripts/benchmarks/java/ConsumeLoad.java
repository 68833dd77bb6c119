package twinlog.bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * Consumes a topic from its beginning with N push consumers of one group, which do nothing with the messages.
 *
 * Arguments: namesrv topic group consumers messages limitSeconds. One line of JSON: from the first message until the last, with
 * the CPU time of this JVM between them.
 */
public final class ConsumeLoad {
    private ConsumeLoad() {
    }

    public static void main(String[] args) throws Exception {
        long expected = Long.parseLong(args[4]);
        AtomicLong got = new AtomicLong();
        AtomicLong firstNanos = new AtomicLong();
        AtomicLong firstCpuNanos = new AtomicLong();
        CountDownLatch all = new CountDownLatch(1);
        MessageListenerConcurrently listener = (messages, context) -> {
            if (firstNanos.get() == 0 && firstNanos.compareAndSet(0, System.nanoTime())) {
                firstCpuNanos.set(cpuNanos());
            }
            if (got.addAndGet(messages.size()) >= expected) {
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[3]); i++) {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
            consumer.setNamesrvAddr(args[0]);
            consumer.setInstanceName("consumer-" + i);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(args[1], "*");
            consumer.registerMessageListener(listener);
            consumer.start();
            consumers.add(consumer);
        }
        boolean whole = all.await(Long.parseLong(args[5]), TimeUnit.SECONDS);
        double elapsed = (System.nanoTime() - firstNanos.get()) / 1e9;
        double cpu = (cpuNanos() - firstCpuNanos.get()) / 1e9;
        System.out.printf("{\"messages\":%d,\"whole\":%b,\"elapsed_s\":%.3f,\"client_cpu_s\":%.3f}%n", got.get(), whole,
            elapsed, cpu);
        System.out.flush();
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
        System.exit(0);
    }

    private static long cpuNanos() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
