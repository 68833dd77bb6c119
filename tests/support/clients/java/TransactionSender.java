package twinlog.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * One TransactionMQProducer. Each message carries in its property "outcome" what becomes of its transaction at once
 * (COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW), and in "checked" what the broker is told when it asks later: the same again
 * where it was settled.
 */
public final class TransactionSender implements Handle, TransactionListener {
    private final TransactionMQProducer producer;
    private final Queue<String> checks = new ConcurrentLinkedQueue<>();

    public TransactionSender(Map<String, String> options) throws Exception {
        producer = new TransactionMQProducer(options.get("group"));
        producer.setNamesrvAddr(options.get("namesrv"));
        producer.setInstanceName(options.get("instance"));
        producer.setPollNameServerInterval(Integer.parseInt(options.get("poll_ms")));
        producer.setVipChannelEnabled(false);
        // A broker asks those producers that it knows by their heartbeats.
        producer.setHeartbeatBrokerInterval(500);
        producer.setTransactionListener(this);
        producer.start();
        producer.getDefaultMQProducerImpl().getmQClientFactory().updateTopicRouteInfoFromNameServer(options.get("topic"));
        producer.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return LocalTransactionState.valueOf(message.getUserProperty("outcome"));
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        checks.add(Json.quote(message.getTransactionId()));
        return LocalTransactionState.valueOf(message.getUserProperty("checked"));
    }

    @Override
    public String call(String method, Map<String, String> options) throws Exception {
        switch (method) {
            case "send":
                return send(options);
            case "checks":
                return "[" + String.join(",", new ArrayList<>(checks)) + "]";
            case "shutdown":
                producer.shutdown();
                return "null";
            default:
                throw new IllegalArgumentException(method);
        }
    }

    private String send(Map<String, String> options) throws Exception {
        List<String> rows = new ArrayList<>();
        int first = Integer.parseInt(options.get("first"));
        String[] outcomes = options.get("outcomes").split(",");
        for (int i = first; i < first + Integer.parseInt(options.get("count")); i++) {
            byte[] body = Bodies.body(options.get("seed"), i, Integer.parseInt(options.get("body_size")));
            Message message = new Message(options.get("topic"), options.get("tags"), "", body);
            message.setKeys(options.get("keys").replace("{i}", String.valueOf(i)));
            String outcome = outcomes[i % outcomes.length];
            message.putUserProperty("outcome", outcome);
            message.putUserProperty("checked", outcome.equals("UNKNOW") ? options.get("checked") : outcome);
            long begin = System.nanoTime();
            try {
                SendResult result = producer.sendMessageInTransaction(message, null);
                rows.add(SendJob.row(i, message, result, null, begin));
            } catch (Exception e) {
                rows.add(SendJob.row(i, message, null, e, begin));
            }
        }
        return "[" + String.join(",", rows) + "]";
    }
}
