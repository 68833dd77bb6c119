package twinlog.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A push consumer in order that takes its time. Keeps a row for each message: queue, offset, when it began and ended in ms. */
public final class OrderlyCollector implements Handle, MessageListenerOrderly {
    private final DefaultMQPushConsumer consumer;
    private final List<String> rows = new ArrayList<>();
    private final long slowMs;

    public OrderlyCollector(Map<String, String> options) throws Exception {
        slowMs = Long.parseLong(options.get("slow_ms"));
        consumer = new DefaultMQPushConsumer(options.get("group"));
        consumer.setNamesrvAddr(options.get("namesrv"));
        consumer.setInstanceName(options.get("instance"));
        consumer.setPollNameServerInterval(Integer.parseInt(options.get("poll_ms")));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.get("topic"), "*");
        consumer.registerMessageListener(this);
        consumer.start();
    }

    @Override
    public ConsumeOrderlyStatus consumeMessage(List<MessageExt> messages, ConsumeOrderlyContext context) {
        for (MessageExt message : messages) {
            long begin = System.currentTimeMillis();
            try {
                Thread.sleep(slowMs);
            } catch (InterruptedException e) {
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            synchronized (rows) {
                rows.add("[" + message.getQueueId() + "," + message.getQueueOffset() + "," + begin + "," + System.currentTimeMillis() + "]");
            }
        }
        return ConsumeOrderlyStatus.SUCCESS;
    }

    @Override
    public String call(String method, Map<String, String> options) throws Exception {
        synchronized (rows) {
            return "[" + String.join(",", rows) + "]";
        }
    }
}
