package twinlog.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/** A producer and consumers in somebody's name: AclClientRPCHook signs what they ask, unless there is no key. */
public final class AclClient implements Handle {
    private final Map<String, String> options;
    private final DefaultMQProducer producer;

    public AclClient(Map<String, String> options) throws Exception {
        this.options = options;
        producer = new DefaultMQProducer("P_" + options.get("instance").replace('-', '_'), hook());
        producer.setNamesrvAddr(options.get("namesrv"));
        producer.setInstanceName(options.get("instance"));
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
    }

    private RPCHook hook() {
        String key = options.get("key");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, options.get("secret")));
    }

    @Override
    public String call(String method, Map<String, String> arguments) throws Exception {
        switch (method) {
            case "send":
                return Json.quote(send(arguments.get("topic"), arguments.get("body")));
            case "consume":
                return Json.quote(consume(arguments));
            case "shutdown":
                producer.shutdown();
                return "null";
            default:
                throw new IllegalArgumentException(method);
        }
    }

    /** The status, or what the client threw. */
    private String send(String topic, String body) {
        try {
            Message message = new Message(topic, "TagA", "key-" + body, body.getBytes(StandardCharsets.UTF_8));
            return producer.send(message).getSendStatus().name();
        } catch (Exception e) {
            return e + ", because of " + e.getCause();
        }
    }

    /** The bodies that a new push consumer gets, sorted and joined by commas; it waits for `count` of them. */
    private String consume(Map<String, String> arguments) throws Exception {
        int count = Integer.parseInt(arguments.get("count"));
        List<String> bodies = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(arguments.get("group"), hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(options.get("namesrv"));
        consumer.setInstanceName(options.get("instance") + "-consumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments.get("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> bodies.add(new String(message.getBody(), StandardCharsets.UTF_8)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long deadline = System.currentTimeMillis() + Long.parseLong(arguments.get("timeout_ms"));
        while (bodies.size() < count && System.currentTimeMillis() < deadline) {
            Thread.sleep(20);
        }
        consumer.shutdown();
        List<String> sorted = new ArrayList<>(bodies);
        Collections.sort(sorted);
        return String.join(",", sorted);
    }
}
