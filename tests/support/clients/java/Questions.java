package twinlog.interop;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Asks ("ask"), and answers what is asked on a topic with the question behind "re: " (option "answer" is true). */
public final class Questions implements Handle {
    private final DefaultMQProducer producer;
    private DefaultMQPushConsumer consumer;

    public Questions(Map<String, String> options) throws Exception {
        producer = new DefaultMQProducer(options.get("group"));
        producer.setNamesrvAddr(options.get("namesrv"));
        producer.setInstanceName(options.get("instance"));
        producer.start();
        if (Boolean.parseBoolean(options.get("answer"))) {
            consumer = new DefaultMQPushConsumer(options.get("group"));
            consumer.setNamesrvAddr(options.get("namesrv"));
            consumer.setInstanceName(options.get("instance") + "-consumer");
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(options.get("topic"), "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    answer(message);
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
        }
    }

    private void answer(MessageExt message) {
        try {
            String text = "re: " + new String(message.getBody(), StandardCharsets.UTF_8);
            producer.send(MessageUtil.createReplyMessage(message, text.getBytes(StandardCharsets.UTF_8)), 3000);
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    @Override
    public String call(String method, Map<String, String> options) throws Exception {
        switch (method) {
            case "ask":
                byte[] body = options.get("text").getBytes(StandardCharsets.UTF_8);
                Message reply = producer.request(new Message(options.get("topic"), body), 20_000);
                return Json.quote(new String(reply.getBody(), StandardCharsets.UTF_8));
            case "shutdown":
                producer.shutdown();
                if (consumer != null) {
                    consumer.shutdown();
                }
                return "null";
            default:
                throw new IllegalArgumentException(method);
        }
    }
}
