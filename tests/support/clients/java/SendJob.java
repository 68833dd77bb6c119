package twinlog.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;

/** Sends messages numbered first .. first + count - 1 and keeps one JSON row for each: what became of it. */
final class SendJob {
    private static final int IN_FLIGHT_MAX = 256;

    private final DefaultMQProducer producer;
    private final Map<String, String> options;
    private final int first;
    private final int count;
    private final long timeoutMs;
    private final long pauseMs;
    private final int batchSize;
    private final int delayLevel;
    private final String[] tags;
    private final AtomicInteger next = new AtomicInteger();
    private final AtomicInteger answered = new AtomicInteger();
    private final AtomicReferenceArray<String> rows;
    private final CountDownLatch workers;
    private final Semaphore inFlight = new Semaphore(IN_FLIGHT_MAX);
    private final long startedNanos = System.nanoTime();
    private volatile boolean stopped;

    SendJob(DefaultMQProducer producer, Map<String, String> options) {
        this.producer = producer;
        this.options = options;
        first = Integer.parseInt(options.get("first"));
        count = Integer.parseInt(options.get("count"));
        timeoutMs = Long.parseLong(options.get("send_timeout_ms"));
        pauseMs = Long.parseLong(options.get("pause_ms"));
        batchSize = Integer.parseInt(options.getOrDefault("batch_size", "1"));
        delayLevel = Integer.parseInt(options.getOrDefault("delay_level", "0"));
        tags = options.get("tags").isEmpty() ? new String[0] : options.get("tags").split(",");
        rows = new AtomicReferenceArray<>(count);
        workers = new CountDownLatch(Integer.parseInt(options.get("threads")));
    }

    void start() {
        for (int i = Integer.parseInt(options.get("threads")); i > 0; i--) {
            Thread thread = new Thread(this::run, "send-" + i);
            thread.setDaemon(true);
            thread.start();
        }
    }

    void stop() {
        stopped = true;
    }

    int answered() {
        return answered.get();
    }

    /** Wait for the end and return {"elapsed_ms": .., "rows": [..]}; a message without an answer has no row. */
    String await(long waitMs) throws InterruptedException {
        boolean whole = workers.await(waitMs, TimeUnit.MILLISECONDS)
            && inFlight.tryAcquire(IN_FLIGHT_MAX, waitMs, TimeUnit.MILLISECONDS);
        StringBuilder out = new StringBuilder("{\"whole\":" + whole);
        out.append(",\"elapsed_ms\":").append((System.nanoTime() - startedNanos) / 1_000_000).append(",\"rows\":[");
        String comma = "";
        for (int i = 0; i < count; i++) {
            if (rows.get(i) != null) {
                out.append(comma).append(rows.get(i));
                comma = ",";
            }
        }
        return out.append("]}").toString();
    }

    private void run() {
        try {
            for (int i = next.getAndAdd(batchSize); i < count && !stopped; i = next.getAndAdd(batchSize)) {
                if (batchSize > 1) {
                    sendBatch(i, Math.min(i + batchSize, count));
                } else {
                    send(i);
                }
                if (pauseMs > 0) {
                    Thread.sleep(pauseMs);
                }
            }
        } catch (Exception e) {
            e.printStackTrace();
        } finally {
            workers.countDown();
        }
    }

    private void send(int i) throws Exception {
        Message message = message(first + i);
        long begin = System.nanoTime();
        try {
            switch (options.get("mode")) {
                case "sync":
                    note(i, message, producer.send(message, timeoutMs), null, begin);
                    break;
                case "oneway":
                    producer.sendOneway(message);
                    note(i, message, null, null, begin);
                    break;
                default:
                    sendAsync(i, message, begin);
            }
        } catch (Exception e) {
            note(i, message, null, e, begin);
        }
    }

    /** Messages i .. end - 1 in one request. The answer holds the first queue offset, and the ids of all. */
    private void sendBatch(int i, int end) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int number = i; number < end; number++) {
            messages.add(message(first + number));
        }
        long begin = System.nanoTime();
        SendResult result = null;
        Throwable error = null;
        try {
            result = producer.send(messages, timeoutMs);
        } catch (Exception e) {
            error = e;
        }
        String[] offsetIds = result == null ? null : result.getOffsetMsgId().split(",");
        for (int at = 0; at < messages.size(); at++) {
            SendResult own = result == null ? null : new SendResult(result.getSendStatus(),
                MessageClientIDSetter.getUniqID(messages.get(at)), offsetIds[at], result.getMessageQueue(),
                result.getQueueOffset() + at);
            note(i + at, messages.get(at), own, error, begin);
        }
    }

    private void sendAsync(int i, Message message, long begin) throws Exception {
        inFlight.acquire();
        // RocketMQ may throw after it has called back, and the other way round: one permit must come back once.
        AtomicInteger permits = new AtomicInteger(1);
        try {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    note(i, message, result, null, begin);
                    inFlight.release(permits.getAndSet(0));
                }

                @Override
                public void onException(Throwable e) {
                    note(i, message, null, e, begin);
                    inFlight.release(permits.getAndSet(0));
                }
            }, timeoutMs);
        } catch (Exception e) {
            inFlight.release(permits.getAndSet(0));
            throw e;
        }
    }

    private Message message(int index) throws Exception {
        byte[] body = Bodies.body(options.get("seed"), index, Integer.parseInt(options.get("body_size")));
        Message message = new Message(options.get("topic"), body);
        String number = String.valueOf(index);
        if (options.containsKey("keys")) {
            message.setKeys(options.get("keys").replace("{i}", number));
        }
        if (tags.length > 0) {
            message.setTags(tags[index % tags.length]);
        }
        if (delayLevel > 0) {
            message.setDelayTimeLevel(delayLevel);
        }
        for (Map.Entry<String, String> option : options.entrySet()) {
            if (option.getKey().startsWith("property.")) {
                message.putUserProperty(option.getKey().substring(9), option.getValue().replace("{i}", number));
            }
        }
        return message;
    }

    private void note(int i, Message message, SendResult result, Throwable error, long begin) {
        rows.set(i, row(first + i, message, result, error, begin));
        answered.incrementAndGet();
    }

    static String row(int number, Message message, SendResult result, Throwable error, long begin) {
        boolean known = result != null;
        boolean placed = known && result.getMessageQueue() != null;
        StringBuilder row = new StringBuilder("[").append(number);
        row.append(',').append(known ? Json.quote(result.getSendStatus().name()) : "null");
        row.append(',').append(Json.quote(known ? result.getMsgId() : MessageClientIDSetter.getUniqID(message)));
        row.append(',').append(known ? Json.quote(result.getOffsetMsgId()) : "null");
        row.append(',').append(placed ? Json.quote(result.getMessageQueue().getBrokerName()) : "null");
        row.append(',').append(placed ? result.getMessageQueue().getQueueId() : -1);
        row.append(',').append(known ? result.getQueueOffset() : -1);
        row.append(',').append(error == null ? "null" : Json.quote(error.toString()));
        return row.append(',').append((System.nanoTime() - begin) / 1000).append(']').toString();
    }
}
