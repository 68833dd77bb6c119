package twinlog.interop;

import java.math.BigInteger;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/** One DefaultMQPushConsumer that keeps one JSON row for each message it was handed, in the order of arrival. */
public final class Collector implements Handle, MessageListenerConcurrently {
    private final DefaultMQPushConsumer consumer;
    private final List<String> rows = new ArrayList<>();
    private final int failures;

    public Collector(Map<String, String> options) throws Exception {
        consumer = new DefaultMQPushConsumer(options.get("group"));
        consumer.setNamesrvAddr(options.get("namesrv"));
        consumer.setInstanceName(options.get("instance"));
        consumer.setPollNameServerInterval(Integer.parseInt(options.get("poll_ms")));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(options.get("from")));
        if (options.containsKey("sql")) {
            consumer.subscribe(options.get("topic"), MessageSelector.bySql(options.get("sql")));
        } else {
            consumer.subscribe(options.get("topic"), options.get("expression"));
        }
        consumer.registerMessageListener(this);
        // Else a clean leave may still forget the messages that the listener has just returned.
        consumer.setAwaitTerminationMillisWhenShutdown(5_000);
        failures = Integer.parseInt(options.get("failures"));
        if (options.containsKey("timestamp")) {
            consumer.setConsumeTimestamp(options.get("timestamp"));
        }
        if (options.containsKey("max_reconsume_times")) {
            consumer.setMaxReconsumeTimes(Integer.parseInt(options.get("max_reconsume_times")));
        }
        consumer.start();
    }

    @Override
    public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
        boolean again = false;
        for (MessageExt message : messages) {
            String row = row(message);
            synchronized (rows) {
                rows.add(row);
                rows.notifyAll();
            }
            again |= message.getReconsumeTimes() < failures;
        }
        return again ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }

    @Override
    public String call(String method, Map<String, String> options) throws Exception {
        switch (method) {
            case "consumed":
                return consumed(Integer.parseInt(options.get("count")), Long.parseLong(options.get("timeout_ms")));
            case "shutdown":
                consumer.shutdown();
                return "null";
            default:
                throw new IllegalArgumentException(method);
        }
    }

    private String consumed(int count, long timeoutMs) throws InterruptedException {
        long deadline = System.currentTimeMillis() + timeoutMs;
        synchronized (rows) {
            while (rows.size() < count && System.currentTimeMillis() < deadline) {
                rows.wait(Math.max(1, deadline - System.currentTimeMillis()));
            }
            return "[" + String.join(",", rows) + "]";
        }
    }

    static String row(MessageExt message) {
        String offsetId = message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : null;
        StringBuilder row = new StringBuilder("[").append(Json.quote(message.getMsgId()));
        row.append(',').append(Json.quote(offsetId));
        row.append(',').append(Json.quote(message.getTopic()));
        row.append(',').append(message.getQueueId());
        row.append(',').append(message.getQueueOffset());
        row.append(',').append(Json.quote(sha1(message.getBody())));
        row.append(',').append(Json.quote(message.getKeys()));
        row.append(',').append(Json.quote(message.getTags()));
        row.append(',').append(Json.object(message.getProperties()));
        row.append(',').append(message.getReconsumeTimes());
        row.append(',').append(message.getCommitLogOffset());
        row.append(',').append(Json.quote(host(message.getStoreHost())));
        row.append(',').append(message.getStoreTimestamp());
        return row.append(']').toString();
    }

    private static String host(SocketAddress address) {
        InetSocketAddress inet = (InetSocketAddress) address;
        return inet.getAddress().getHostAddress() + ":" + inet.getPort();
    }

    private static String sha1(byte[] body) {
        try {
            return String.format("%040x", new BigInteger(1, MessageDigest.getInstance("SHA-1").digest(body)));
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }
}
