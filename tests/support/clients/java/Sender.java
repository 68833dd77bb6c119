package twinlog.interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** One DefaultMQProducer; "start" begins to send in the background, so that a test can kill a broker meanwhile. */
public final class Sender implements Handle {
    private final DefaultMQProducer producer;
    private final Map<String, SendJob> jobs = new ConcurrentHashMap<>();
    private final AtomicInteger jobCount = new AtomicInteger();

    public Sender(Map<String, String> options) throws Exception {
        if (options.containsKey("compression")) {
            System.setProperty("rocketmq.message.compressType", options.get("compression")); // Each producer of 5.x reads it.
        }
        producer = new DefaultMQProducer(options.get("group"), Boolean.parseBoolean(options.get("trace")), null);
        producer.setNamesrvAddr(options.get("namesrv"));
        producer.setInstanceName(options.get("instance"));
        producer.setPollNameServerInterval(Integer.parseInt(options.get("poll_ms")));
        producer.setVipChannelEnabled(Boolean.parseBoolean(options.get("vip")));
        producer.setRetryTimesWhenSendFailed(Integer.parseInt(options.get("retries")));
        producer.setRetryTimesWhenSendAsyncFailed(Integer.parseInt(options.get("retries")));
        producer.start();
    }

    @Override
    public String call(String method, Map<String, String> options) throws Exception {
        switch (method) {
            case "start":
                String name = "job-" + jobCount.incrementAndGet();
                SendJob job = new SendJob(producer, options);
                jobs.put(name, job);
                job.start();
                return Json.quote(name);
            case "progress":
                return String.valueOf(jobs.get(options.get("job")).answered());
            case "finish":
                SendJob done = jobs.get(options.get("job"));
                if (Boolean.parseBoolean(options.get("stop"))) {
                    done.stop();
                }
                return done.await(Long.parseLong(options.get("timeout_ms")));
            case "shutdown":
                producer.shutdown();
                return "null";
            default:
                throw new IllegalArgumentException(method);
        }
    }
}
