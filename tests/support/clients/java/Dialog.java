package twinlog.interop;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Request and reply: a producer that asks, and a consumer that answers what it is asked with "re: " before it. */
public final class Dialog implements Handle, MessageListenerConcurrently {
    private final String topic;
    private final DefaultMQProducer asker;
    private final DefaultMQProducer answerer;
    private final DefaultMQPushConsumer consumer;

    public Dialog(Map<String, String> options) throws Exception {
        topic = options.get("topic");
        asker = producer(options, "asker");
        answerer = producer(options, "answerer");
        consumer = new DefaultMQPushConsumer(options.get("group"));
        consumer.setNamesrvAddr(options.get("namesrv"));
        consumer.setInstanceName(options.get("instance") + "-consumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET); // The first question may be quicker.
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(this);
        consumer.start();
    }

    private static DefaultMQProducer producer(Map<String, String> options, String name) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(options.get("group") + "-" + name);
        producer.setNamesrvAddr(options.get("namesrv"));
        producer.setInstanceName(options.get("instance") + "-" + name);
        producer.start();
        return producer;
    }

    @Override
    public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
        try {
            for (MessageExt message : messages) {
                String text = "re: " + new String(message.getBody(), StandardCharsets.UTF_8);
                answerer.send(MessageUtil.createReplyMessage(message, text.getBytes(StandardCharsets.UTF_8)), 3_000);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        } catch (Exception e) {
            e.printStackTrace();
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }
    }

    @Override
    public String call(String method, Map<String, String> options) throws Exception {
        switch (method) {
            case "ask":
                Message question = new Message(topic, options.get("text").getBytes(StandardCharsets.UTF_8));
                Message answer = asker.request(question, Long.parseLong(options.get("timeout_ms")));
                return Json.quote(new String(answer.getBody(), StandardCharsets.UTF_8));
            case "shutdown":
                asker.shutdown();
                answerer.shutdown();
                consumer.shutdown();
                return "null";
            default:
                throw new IllegalArgumentException(method);
        }
    }
}
