import java.nio.charset.StandardCharsets;
import java.util.Collections;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;

/** Sends one large message for each way to compress; tests/clients/test_compressed.py reads them. */
public class CompressedSender {
    public static void main(String[] args) throws Exception {
        for (CompressionType type : CompressionType.values()) {
            DefaultMQProducer producer = new DefaultMQProducer("compressed-" + type);
            producer.setNamesrvAddr(args[0]);
            producer.setCompressType(type);
            producer.start();
            String body = String.join("", Collections.nCopies(20_000, "twinlog " + type + " "));
            Message message = new Message("clients-compressed", type.name(), body.getBytes(StandardCharsets.UTF_8));
            System.out.println("sent " + producer.send(message, 15_000).getSendStatus() + " " + type);
            producer.shutdown();
        }
        System.exit(0);
    }
}
