package twinlog.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** One DefaultMQPullConsumer: reads whole queues, and asks for single messages by key, by id and by time. */
public final class Reader implements Handle {
    private final DefaultMQPullConsumer consumer;

    public Reader(Map<String, String> options) throws Exception {
        consumer = new DefaultMQPullConsumer(options.get("group"));
        consumer.setNamesrvAddr(options.get("namesrv"));
        consumer.setInstanceName(options.get("instance"));
        consumer.setVipChannelEnabled(false);
        consumer.start();
    }

    @Override
    public String call(String method, Map<String, String> options) throws Exception {
        String topic = options.get("topic");
        switch (method) {
            case "queue":
                return queue(queueOf(options));
            case "time":
                return String.valueOf(consumer.searchOffset(queueOf(options), Long.parseLong(options.get("timestamp"))));
            case "key":
                int most = Integer.parseInt(options.get("most"));
                try {
                    return rows(consumer.queryMessage(topic, options.get("key"), most, 0, Long.MAX_VALUE).getMessageList());
                } catch (MQClientException e) {
                    if (e.getResponseCode() == 17 || e.getErrorMessage().contains("no message")) {
                        return "[]"; // How this client says that nothing was found.
                    }
                    throw e;
                }
            case "id":
                return Collector.row(consumer.viewMessage(topic, options.get("id")));
            case "shutdown":
                consumer.shutdown();
                return "null";
            default:
                throw new IllegalArgumentException(method);
        }
    }

    private static MessageQueue queueOf(Map<String, String> options) {
        return new MessageQueue(options.get("topic"), options.get("broker"), Integer.parseInt(options.get("queue_id")));
    }

    private String queue(MessageQueue queue) throws Exception {
        long least = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        List<MessageExt> found = new ArrayList<>();
        for (long offset = least; offset < end; ) {
            PullResult result = consumer.pull(queue, "*", offset, 32);
            if (result.getPullStatus() != PullStatus.FOUND) {
                throw new IllegalStateException("at " + offset + " of " + queue + " " + least + ".." + end + ": " + result);
            }
            found.addAll(result.getMsgFoundList());
            offset = result.getNextBeginOffset();
        }
        return "{\"min\":" + least + ",\"max\":" + end + ",\"rows\":" + rows(found) + "}";
    }

    private static String rows(List<MessageExt> messages) {
        List<String> rows = new ArrayList<>();
        for (MessageExt message : messages) {
            rows.add(Collector.row(message));
        }
        return "[" + String.join(",", rows) + "]";
    }
}
