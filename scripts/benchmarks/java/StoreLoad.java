package twinlog.bench;

import java.io.File;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * RocketMQ's own store without its broker: append messages for some seconds, one by one or in batches.
 *
 * Arguments: directory, body bytes, messages in a batch, seconds of warm-up, seconds measured. One line of JSON comes out.
 */
public final class StoreLoad {
    private static final int QUEUES = 8;
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private StoreLoad() {
    }

    public static void main(String[] arguments) throws Exception {
        int bodyBytes = Integer.parseInt(arguments[1]);
        int batch = Integer.parseInt(arguments[2]);
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(arguments[0]);
        config.setStorePathCommitLog(arguments[0] + File.separator + "commitlog");
        config.setDiskMaxUsedSpaceRatio(95);
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("bench", true),
            (topic, queueId, offset, tagsCode, time, bitMap, properties) -> { }, new BrokerConfig());
        if (!store.load()) {
            throw new IllegalStateException("the store did not load");
        }
        store.start();
        byte[] body = new byte[bodyBytes];
        run(store, body, batch, Integer.parseInt(arguments[3]));
        long begin = System.nanoTime();
        long messages = run(store, body, batch, Integer.parseInt(arguments[4]));
        double elapsed = (System.nanoTime() - begin) / 1e9;
        System.out.printf("{\"messages\": %d, \"seconds\": %.3f}%n", messages, elapsed);
        System.out.flush();
        Runtime.getRuntime().halt(0); // What it wrote is thrown away; a clean stop takes seconds.
    }

    private static long run(DefaultMessageStore store, byte[] body, int batch, int seconds) throws Exception {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        long messages = 0;
        while (System.nanoTime() < end) {
            PutMessageResult result;
            if (batch == 1) {
                MessageExtBrokerInner message = place(new MessageExtBrokerInner(), messages);
                message.setBody(body);
                name(message, messages);
                message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
                result = store.putMessage(message);
            } else {
                result = store.putMessages(batchOf(body, messages, batch));
            }
            if (!result.isOk()) {
                throw new IllegalStateException(String.valueOf(result.getPutMessageStatus()));
            }
            messages += batch;
        }
        return messages;
    }

    private static MessageExtBatch batchOf(byte[] body, long first, int count) {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message message = new Message("bench", body);
            name(message, first + i);
            messages.add(message);
        }
        MessageExtBatch batch = place(new MessageExtBatch(), first / count);
        batch.setBody(MessageDecoder.encodeMessages(messages));
        return batch;
    }

    private static <T extends MessageExt> T place(T message, long number) {
        message.setTopic("bench");
        message.setQueueId((int) (number % QUEUES));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
        return message;
    }

    private static void name(Message message, long number) {
        message.setKeys("key-" + number);
        String unique = "0000000000000000" + Long.toHexString(number);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
            "7F00000100000000" + unique.substring(unique.length() - 16).toUpperCase());
    }
}
