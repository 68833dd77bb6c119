package twinlog.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends messages as fast as answers come: N threads over one DefaultMQProducer, each with one sync send under way.
 *
 * Arguments: namesrv topic bodySize batch firstWarmUpSeconds warmUpSeconds seconds threads...; a send is of so many messages together.
 * One line of JSON for the start and the end of each measurement: {"event":"start",..} and {"event":"end",..}, so that the caller can read the broker's CPU time between.
 */
public final class ProduceLoad {
    private ProduceLoad() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench-producer");
        producer.setNamesrvAddr(args[0]);
        producer.setRetryTimesWhenSendFailed(0); // One call is one request, and an error is counted as one.
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE); // Bodies are random: zlib would take the client's time for nothing.
        producer.start();
        byte[] body = new byte[Integer.parseInt(args[2])];
        new Random(1).nextBytes(body);
        Message warmUp = new Message(args[1], body);
        if (!producer.send(warmUp, 10_000).getSendStatus().name().equals("SEND_OK")) {
            Thread.sleep(3_000); // The slave connects a little later than the broker serves.
        }
        int batch = Integer.parseInt(args[3]);
        run(producer, args[1], body, batch, Integer.parseInt(args[7]), Integer.parseInt(args[4]));
        for (int i = 7; i < args.length; i++) {
            int threads = Integer.parseInt(args[i]);
            run(producer, args[1], body, batch, threads, Integer.parseInt(args[5]));
            System.out.println("{\"event\":\"start\",\"threads\":" + threads + "}");
            String result = run(producer, args[1], body, batch, threads, Integer.parseInt(args[6]));
            System.out.println("{\"event\":\"end\",\"threads\":" + threads + "," + result + "}");
        }
        System.exit(0);
    }

    private static String run(DefaultMQProducer producer, String topic, byte[] body, int batch, int threads, int seconds)
        throws Exception {
        long begin = System.nanoTime();
        long end = begin + seconds * 1_000_000_000L;
        List<Loader> loaders = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            loaders.add(new Loader(producer, topic, body, batch, end));
        }
        loaders.forEach(Thread::start);
        Latencies latencies = new Latencies();
        Map<String, Long> outcomes = new TreeMap<>();
        for (Loader loader : loaders) {
            loader.join();
            latencies.add(loader.latencies);
            loader.outcomes.forEach((outcome, count) -> outcomes.merge(outcome, count, Long::sum));
        }
        double elapsed = (System.nanoTime() - begin) / 1e9;
        StringBuilder counts = new StringBuilder();
        outcomes.forEach((outcome, count) ->
            counts.append(counts.length() == 0 ? "" : ",").append('"').append(outcome).append("\":").append(count));
        return String.format("\"elapsed_s\":%.3f,%s,\"outcomes\":{%s}", elapsed, latencies.json(batch), counts);
    }

    /** One client thread. */
    private static final class Loader extends Thread {
        private final DefaultMQProducer producer;
        private final String topic;
        private final byte[] body;
        private final int batch;
        private final long endNanos;
        private final Latencies latencies = new Latencies();
        private final Map<String, Long> outcomes = new TreeMap<>();

        Loader(DefaultMQProducer producer, String topic, byte[] body, int batch, long endNanos) {
            this.producer = producer;
            this.topic = topic;
            this.body = body;
            this.batch = batch;
            this.endNanos = endNanos;
        }

        @Override
        public void run() {
            for (long begin = System.nanoTime(); begin < endNanos; begin = System.nanoTime()) {
                String outcome;
                try {
                    SendResult result = batch == 1 ? producer.send(new Message(topic, body)) : producer.send(together());
                    outcome = result.getSendStatus().name();
                    latencies.note((System.nanoTime() - begin) / 1000);
                } catch (Exception e) {
                    outcome = e.getClass().getSimpleName();
                }
                outcomes.merge(outcome, (long) batch, Long::sum);
            }
        }

        private List<Message> together() {
            List<Message> messages = new ArrayList<>(batch);
            for (int i = 0; i < batch; i++) {
                messages.add(new Message(topic, body));
            }
            return messages;
        }
    }

    /** Counts of latencies: to the microsecond below 100 ms, to the millisecond above. */
    private static final class Latencies {
        private static final int FINE = 100_000;
        private final int[] counts = new int[FINE + 20_000];
        private long total;
        private long maxMicros;

        void note(long micros) {
            counts[micros < FINE ? (int) micros : (int) Math.min(FINE + (micros - FINE) / 1000, counts.length - 1)]++;
            maxMicros = Math.max(maxMicros, micros);
            total++;
        }

        void add(Latencies other) {
            for (int i = 0; i < counts.length; i++) {
                counts[i] += other.counts[i];
            }
            total += other.total;
            maxMicros = Math.max(maxMicros, other.maxMicros);
        }

        String json(int batch) {
            return String.format("\"answered\":%d,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"p999_ms\":%.3f,\"max_ms\":%.3f",
                total * batch, percentile(0.5) / 1e3, percentile(0.99) / 1e3, percentile(0.999) / 1e3, maxMicros / 1e3);
        }

        private long percentile(double share) {
            long left = (long) Math.ceil(total * share);
            for (int i = 0; i < counts.length; i++) {
                left -= counts[i];
                if (left <= 0) {
                    return i < FINE ? i : FINE + (i - FINE) * 1000L;
                }
            }
            return maxMicros;
        }
    }
}
