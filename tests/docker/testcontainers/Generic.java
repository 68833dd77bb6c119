import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;

/** The container without a class of its own: a port of the host that is chosen by whoever starts it. */
public class Generic {
    public static void main(String[] arguments) throws Exception {
        String port = arguments[0];
        try (GenericContainer<?> rocketmq = new GenericContainer<>("twinlog:dev")) {
            rocketmq.setPortBindings(List.of(port + ":10911"));
            rocketmq.withExposedPorts(9876)
                    .withCommand("standalone", "--address", rocketmq.getHost() + ":" + port)
                    .waitingFor(Wait.forLogMessage("ready .*\\n", 1))
                    .start();
            DefaultMQProducer producer = new DefaultMQProducer("shop");
            producer.setNamesrvAddr(rocketmq.getHost() + ":" + rocketmq.getMappedPort(9876));
            producer.start();
            System.out.println("generic " + producer.send(new Message("orders", "hello".getBytes())).getSendStatus());
            producer.shutdown();
        }
    }
}
