package org.apache.rocketmq.test.base;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.test.client.rmq.RMQAsyncSendProducer;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
import org.apache.rocketmq.test.client.rmq.RMQTransactionalProducer;
import org.apache.rocketmq.test.factory.ConsumerFactory;
import org.apache.rocketmq.test.listener.AbstractListener;
import org.apache.rocketmq.test.util.MQAdmin;
import org.apache.rocketmq.test.util.MQRandomUtils;

/**
 * Takes the place of the class of this name in RocketMQ's jar of tests, which starts a cluster inside of the JVM.
 * This one starts nothing: it knows where a cluster is (-Dpeer.*), and hands out clients of it.
 */
public class BaseConf {
    public static String nsAddr = System.getProperty("peer.namesrv");
    protected static String clusterName = System.getProperty("peer.cluster", "DefaultCluster");
    protected static String broker1Name = "broker-a";
    protected static String broker2Name = "broker-b";
    protected static int brokerNum = 2;
    protected static int waitTime = 5; // Polls of a second, in the tests of mqadmin.
    protected static int consumeTime = 60_000;
    protected static boolean debug = false;
    protected static List<Object> mqClients = Collections.synchronizedList(new ArrayList<>());

    // Named by the tests' classes, and null: there is no such thing in this JVM.
    protected static NamesrvController namesrvController;
    protected static BrokerController brokerController1;
    protected static BrokerController brokerController2;

    public static String initTopic() {
        return initTopicWithName(MQRandomUtils.getRandomTopic());
    }

    public static String initTopicWithName(String name) {
        IntegrationTestBase.initTopic(name, nsAddr, clusterName);
        return name;
    }

    public static String initConsumerGroup() {
        return initConsumerGroup(MQRandomUtils.getRandomConsumerGroup());
    }

    public static String initConsumerGroup(String name) {
        MQAdmin.createSub(nsAddr, clusterName, name);
        return name;
    }

    public static RMQNormalProducer getProducer(String namesrv, String topic) {
        return getProducer(namesrv, topic, false);
    }

    public static RMQNormalProducer getProducer(String namesrv, String topic, boolean tls) {
        return kept(new RMQNormalProducer(namesrv, topic, tls));
    }

    public static RMQNormalProducer getProducer(String namesrv, String topic, String group, String instance) {
        return kept(new RMQNormalProducer(namesrv, topic, group, instance));
    }

    public static RMQTransactionalProducer getTransactionalProducer(
        String namesrv, String topic, TransactionListener listener) {
        return kept(new RMQTransactionalProducer(namesrv, topic, false, listener));
    }

    public static RMQAsyncSendProducer getAsyncProducer(String namesrv, String topic) {
        return kept(new RMQAsyncSendProducer(namesrv, topic));
    }

    public static RMQNormalConsumer getConsumer(
        String namesrv, String topic, String expression, AbstractListener listener) {
        return getConsumer(namesrv, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
        String namesrv, String topic, String expression, AbstractListener listener, boolean tls) {
        return getConsumer(namesrv, initConsumerGroup(), topic, expression, listener, tls);
    }

    public static RMQNormalConsumer getConsumer(
        String namesrv, String group, String topic, String expression, AbstractListener listener) {
        return getConsumer(namesrv, group, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
        String namesrv, String group, String topic, String expression, AbstractListener listener, boolean tls) {
        return kept(ConsumerFactory.getRMQNormalConsumer(namesrv, group, topic, expression, listener, tls));
    }

    /** Called after each test. One client that does not stop must not keep the others. */
    public static void shutdown() {
        List<Object> started;
        synchronized (mqClients) {
            started = new ArrayList<>(mqClients);
            mqClients.clear();
        }
        for (Object client : started) {
            try {
                client.getClass().getMethod("shutdown").invoke(client);
            } catch (ReflectiveOperationException e) {
                System.err.println("not stopped: " + client.getClass() + ": " + e);
            }
        }
    }

    private static <T> T kept(T client) {
        mqClients.add(client);
        return client;
    }
}
