package twinlog.bench;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends at an even rate, whatever becomes of the messages before: each send is begun on a free thread, so that one that hangs does not hide that
 * the cluster is back.
 *
 * Arguments: namesrv topic, then for each kind of producer NAME,POLL_MS,EVERY_MS,THREADS,COUNT,STAGGER_MS. POLL_MS 0 leaves pollNameServerInterval as it
 * is; each of COUNT producers is started STAGGER_MS after the one before, and has connections of its own. One line of JSON for each answer, with
 * System.nanoTime() of the send and of the answer. Ends when its standard input does.
 */
public final class FailoverLoad {
    private static final ScheduledExecutorService CLOCK = Executors.newScheduledThreadPool(2);

    private FailoverLoad() {
    }

    public static void main(String[] args) throws Exception {
        for (int i = 2; i < args.length; i++) {
            String[] kind = args[i].split(",");
            for (int n = 0; n < Integer.parseInt(kind[4]); n++) {
                int number = n;
                CLOCK.schedule(() -> begin(args[0], args[1], kind, number), n * Long.parseLong(kind[5]), TimeUnit.MILLISECONDS);
            }
        }
        while (System.in.read() >= 0) {
            continue;
        }
        System.exit(0);
    }

    private static void begin(String namesrv, String topic, String[] kind, int number) {
        String name = kind[0] + "-" + number;
        DefaultMQProducer producer = new DefaultMQProducer("bench-" + name);
        producer.setInstanceName(name);
        producer.setNamesrvAddr(namesrv);
        int poll = Integer.parseInt(kind[1]);
        if (poll > 0) {
            producer.setPollNameServerInterval(poll);
        }
        try {
            producer.start();
        } catch (Exception e) {
            say(name, "", 0, 0, e.toString(), "");
            return;
        }
        say(name, "", System.nanoTime(), System.nanoTime(), "STARTED", "");
        int threads = Integer.parseInt(kind[3]);
        ExecutorService free = new ThreadPoolExecutor(0, threads, 60, TimeUnit.SECONDS, new SynchronousQueue<>());
        AtomicLong numbers = new AtomicLong();
        CLOCK.scheduleAtFixedRate(() -> {
            String id = name + "-" + numbers.getAndIncrement();
            try {
                free.execute(() -> send(producer, name, topic, id));
            } catch (RejectedExecutionException e) {
                say(name, id, System.nanoTime(), System.nanoTime(), "NO_FREE_THREAD", "");
            }
        }, 0, Long.parseLong(kind[2]), TimeUnit.MILLISECONDS);
    }

    private static void send(DefaultMQProducer producer, String name, String topic, String id) {
        long sent = System.nanoTime();
        String status;
        String offsetId = "";
        try {
            SendResult result = producer.send(new Message(topic, id.getBytes(StandardCharsets.UTF_8)));
            status = result.getSendStatus().name();
            offsetId = result.getOffsetMsgId();
        } catch (Exception e) {
            status = e.getClass().getSimpleName();
        }
        say(name, id, sent, System.nanoTime(), status, offsetId);
    }

    private static synchronized void say(String name, String id, long sent, long came, String status, String offsetId) {
        System.out.println(String.format("{\"producer\":\"%s\",\"id\":\"%s\",\"sent\":%d,\"came\":%d,\"status\":\"%s\",\"offset_id\":\"%s\"}",
            name, id, sent, came, status, offsetId));
    }
}
