import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** What an application does, with default settings. Prints a line `name value...` for each fact; tests/clients/test_clients.py judges. */
public class Scenarios {
    private static final int WAIT_SECONDS = 40;
    private final String namesrv;
    // Each takes the client of 5.x 3 s. Meanwhile the next scenario begins.
    private final ExecutorService beside = Executors.newCachedThreadPool();
    private final List<Future<?>> shutdowns = new ArrayList<>();

    private Scenarios(String namesrv) {
        this.namesrv = namesrv;
    }

    public static void main(String[] args) throws Exception {
        Scenarios all = new Scenarios(args[0]);
        all.produceAndConsume();
        all.order();
        all.broadcast();
        all.delay();
        all.transaction();
        for (Future<?> each : all.shutdowns) {
            each.get(WAIT_SECONDS, TimeUnit.SECONDS);
        }
        System.out.println("end");
        System.exit(0);
    }

    private void produceAndConsume() throws Exception {
        Collector everything = new Collector("clients-all", "clients-plain", "*");
        Collector tagged = new Collector("clients-tag", "clients-plain", "red || green");
        DefaultMQProducer producer = producer("clients-producer");
        for (int i = 0; i < 100; i++) {
            String tag = i % 2 == 0 ? "red" : "blue";
            Message message = new Message("clients-plain", tag, "key-" + i, bytes("sync-" + i));
            message.putUserProperty("number", String.valueOf(i));
            say("sent", producer.send(message).getSendStatus(), "sync-" + i);
        }
        CountDownLatch answered = new CountDownLatch(100);
        for (int i = 0; i < 100; i++) {
            String body = "async-" + i;
            producer.send(new Message("clients-plain", "green", bytes(body)), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    say("sent", result.getSendStatus(), body);
                    answered.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    say("failed", body, error);
                    answered.countDown();
                }
            });
        }
        answered.await(WAIT_SECONDS, TimeUnit.SECONDS);
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            batch.add(new Message("clients-plain", "batched", bytes("batch-" + i)));
        }
        say("sent", producer.send(batch).getSendStatus(), "batch");
        producer.sendOneway(new Message("clients-plain", "oneway", bytes("oneway-0")));
        String large = String.join("", Collections.nCopies(2000, "twinlog-"));
        say("sent", producer.send(new Message("clients-plain", "large", bytes(large))).getSendStatus(), "large");
        everything.report("all", 252);
        tagged.report("tagged", 150);
        shutdowns.add(beside.submit(producer::shutdown));
    }

    private void order() throws Exception {
        Collector ordered = new Collector("clients-order", "clients-order", "*", true, false);
        DefaultMQProducer producer = producer("clients-order-producer");
        for (int i = 0; i < 100; i++) {
            Message message = new Message("clients-order", bytes("shard" + i % 4 + "-" + i / 4));
            producer.send(message, (queues, sent, shard) -> queues.get((Integer) shard % queues.size()), i % 4);
        }
        ordered.report("ordered", 100);
        shutdowns.add(beside.submit(producer::shutdown));
    }

    private void broadcast() throws Exception {
        Collector one = new Collector("clients-broadcast", "clients-broadcast", "*", false, true);
        Collector other = new Collector("clients-broadcast", "clients-broadcast", "*", false, true);
        TimeUnit.SECONDS.sleep(2); // Where a new broadcast consumer begins is decided at its first rebalance.
        DefaultMQProducer producer = producer("clients-broadcast-producer");
        for (int i = 0; i < 20; i++) {
            producer.send(new Message("clients-broadcast", bytes("cast-" + i)));
        }
        one.report("broadcast-one", 20);
        other.report("broadcast-other", 20);
        shutdowns.add(beside.submit(producer::shutdown));
    }

    private void delay() throws Exception {
        Collector delayed = new Collector("clients-delay", "clients-delay", "*");
        DefaultMQProducer producer = producer("clients-delay-producer");
        Message message = new Message("clients-delay", bytes("later"));
        message.setDelayTimeLevel(2);
        long begin = System.currentTimeMillis();
        producer.send(message);
        delayed.report("delayed", 1);
        say("delay-ms", System.currentTimeMillis() - begin);
        shutdowns.add(beside.submit(producer::shutdown));
    }

    private void transaction() throws Exception {
        Collector committed = new Collector("clients-transaction", "clients-transaction", "*");
        Map<String, Integer> checks = new ConcurrentHashMap<>();
        TransactionMQProducer producer = new TransactionMQProducer("clients-transaction-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object number) {
                switch ((Integer) number % 3) {
                    case 0:
                        return LocalTransactionState.COMMIT_MESSAGE;
                    case 1:
                        return LocalTransactionState.ROLLBACK_MESSAGE;
                    default:
                        return LocalTransactionState.UNKNOW;
                }
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checks.merge(text(message), 1, Integer::sum);
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (int i = 0; i < 12; i++) {
            producer.sendMessageInTransaction(new Message("clients-transaction", bytes("half-" + i)), i);
        }
        committed.report("committed", 8);
        say("checked", String.join(" ", checks.keySet()));
        shutdowns.add(beside.submit(producer::shutdown));
    }

    private DefaultMQProducer producer(String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.start();
        return producer;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(Message message) {
        String text = new String(message.getBody(), StandardCharsets.UTF_8);
        return text.length() > 100 ? "large" : text;
    }

    private static synchronized void say(String name, Object... values) {
        StringBuilder line = new StringBuilder(name);
        for (Object value : values) {
            line.append(' ').append(String.valueOf(value).replace('\n', ' '));
        }
        System.out.println(line);
    }

    /** A push consumer that keeps bodies in the order in which it got them. */
    private final class Collector {
        private static final int QUIET_SECONDS = 1;
        private final DefaultMQPushConsumer consumer;
        private final List<String> bodies = Collections.synchronizedList(new ArrayList<>());

        Collector(String group, String topic, String tags) throws Exception {
            this(group, topic, tags, false, false);
        }

        Collector(String group, String topic, String tags, boolean orderly, boolean broadcast) throws Exception {
            consumer = new DefaultMQPushConsumer(group);
            consumer.setNamesrvAddr(namesrv);
            consumer.setInstanceName(group + System.nanoTime());
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(topic, tags);
            if (broadcast) {
                consumer.setMessageModel(MessageModel.BROADCASTING);
            }
            if (orderly) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                    messages.forEach(message -> bodies.add(text(message)));
                    return ConsumeOrderlyStatus.SUCCESS;
                });
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    messages.forEach(message -> bodies.add(text(message)));
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
            }
            consumer.start();
        }

        /** Say what came, once it is as much as was expected and a moment has passed in which more could have come. */
        void report(String name, int expected) throws InterruptedException {
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
            while (bodies.size() < expected && System.nanoTime() < deadline) {
                TimeUnit.MILLISECONDS.sleep(10);
            }
            TimeUnit.SECONDS.sleep(QUIET_SECONDS);
            say(name, bodies.toArray());
            shutdowns.add(beside.submit(consumer::shutdown));
        }
    }
}
