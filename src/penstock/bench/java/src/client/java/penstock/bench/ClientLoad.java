package penstock.bench;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Load for the benchmarks: so many senders for so many seconds, every latency kept. */
final class ClientLoad {
    private DefaultMQProducer producer;
    private String producerFor = "";

    ClientLoad(Map<String, Lines.Handler> commands) {
        commands.put("load", this::load);
        commands.put("consume-load", this::consumeLoad);
        commands.put("end-load", command -> {
            end();
            return new JsonObject();
        });
    }

    private void end() {
        if (producer != null) {
            producer.shutdown();
            producer = null;
        }
    }

    /** One producer for all loads on one cluster: connections and routes are warm after the first. */
    private DefaultMQProducer producer(String namesrv) throws Exception {
        if (producer == null || !producerFor.equals(namesrv)) {
            end();
            producer = new DefaultMQProducer("bench");
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName("bench-" + System.nanoTime());
            producer.setSendMsgTimeout(10_000);
            producer.setRetryTimesWhenSendFailed(0);
            producer.setRetryTimesWhenSendAsyncFailed(0);
            producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
            producer.start();
            producerFor = namesrv;
        }
        return producer;
    }

    /** Latencies of one sender in nanoseconds, growing as needed. */
    private static final class Times {
        private long[] values = new long[1 << 14];
        private int count;

        void add(long value) {
            if (count == values.length) {
                values = Arrays.copyOf(values, 2 * count);
            }
            values[count++] = value;
        }
    }

    static JsonObject quantiles(long[] sorted) {
        JsonObject answer = new JsonObject();
        double[] quantiles = {0.5, 0.99, 0.999};
        String[] names = {"p50_ms", "p99_ms", "p999_ms"};
        for (int i = 0; i < quantiles.length && sorted.length > 0; i++) {
            answer.addProperty(names[i], sorted[(int) Math.min(sorted.length - 1, quantiles[i] * sorted.length)] / 1e6);
        }
        return answer;
    }

    private JsonObject load(JsonObject command) throws Exception {
        DefaultMQProducer sender = producer(command.get("namesrv").getAsString());
        String[] topics = topics(command);
        int senders = (int) Lines.number(command, "senders", 1);
        int batch = (int) Lines.number(command, "batch", 1);
        int inFlight = (int) Lines.number(command, "in_flight", 0);
        byte[] body = new byte[(int) Lines.number(command, "size", 128)];
        Arrays.fill(body, (byte) 'x');
        double seconds = command.get("seconds").getAsDouble();
        for (String topic : topics) {
            sender.send(new Message(topic, body));
        }
        // With "keep" the keys of all acked messages are told, and a sender ends with its first failure.
        boolean keep = Lines.flag(command, "keep");
        Queue<String> acked = new ConcurrentLinkedQueue<>();
        List<Times> all = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        AtomicLong sent = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        long begin = System.nanoTime();
        long end = begin + (long) (seconds * 1e9);
        Semaphore window = new Semaphore(Math.max(1, inFlight));
        for (int i = 0; i < senders; i++) {
            Times times = new Times();
            all.add(times);
            int number = i;
            Thread thread = new Thread(() -> {
                for (long n = 0; System.nanoTime() < end; n++) {
                    String topic = topics[(int) ((number + n * senders) % topics.length)];
                    long start = System.nanoTime();
                    try {
                        if (inFlight > 0) {
                            sendAsync(sender, topic, body, number + ":" + n, window, times, sent, failed);
                            continue;
                        }
                        SendResult result = batch > 1 ? sender.send(batch(topic, body, batch, number + ":" + n))
                            : sender.send(one(topic, body, number + ":" + n));
                        if (result.getSendStatus() == SendStatus.SEND_OK) {
                            sent.addAndGet(batch);
                            if (keep) {
                                acked.add(number + ":" + n);
                            }
                        } else {
                            failed.addAndGet(batch);
                        }
                        times.add(System.nanoTime() - start);
                    } catch (Exception error) {
                        if (failed.getAndAdd(batch) == 0) {
                            error.printStackTrace();
                        }
                        if (keep) {
                            return;
                        }
                    }
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        window.acquire(Math.max(1, inFlight));
        double took = (System.nanoTime() - begin) / 1e9;
        long[] values = all.stream().flatMapToLong(t -> Arrays.stream(t.values, 0, t.count)).sorted().toArray();
        JsonObject answer = quantiles(values);
        if (keep) {
            answer.add("acked", Lines.GSON.toJsonTree(acked));
        }
        answer.addProperty("sent", sent.get());
        answer.addProperty("failed", failed.get());
        answer.addProperty("seconds", took);
        answer.addProperty("rate", sent.get() / took);
        return answer;
    }

    /** The topic of a load, or with "topics" so many whose names begin with it: senders go round them all. */
    private static String[] topics(JsonObject command) {
        String topic = command.get("topic").getAsString();
        int count = (int) Lines.number(command, "topics", 0);
        if (count == 0) {
            return new String[] {topic};
        }
        return IntStream.range(0, count).mapToObj(number -> topic + number).toArray(String[]::new);
    }

    private static Message one(String topic, byte[] body, String key) {
        return new Message(topic, "bench", key, body);
    }

    private static List<Message> batch(String topic, byte[] body, int size, String key) {
        List<Message> messages = new ArrayList<>(size);
        for (int i = 0; i < size; i++) {
            messages.add(one(topic, body, key + ":" + i));
        }
        return messages;
    }

    private static void sendAsync(DefaultMQProducer sender, String topic, byte[] body, String key, Semaphore window,
        Times times, AtomicLong sent, AtomicLong failed) throws Exception {
        window.acquire();
        long start = System.nanoTime();
        sender.send(one(topic, body, key), new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                synchronized (times) {
                    times.add(System.nanoTime() - start);
                }
                sent.incrementAndGet();
                window.release();
            }

            @Override
            public void onException(Throwable error) {
                failed.incrementAndGet();
                window.release();
            }
        });
    }

    /** Senders and one push consumer at once: what the consumer got a second, and how old it was. */
    private JsonObject consumeLoad(JsonObject command) throws Exception {
        String namesrv = command.get("namesrv").getAsString();
        String topic = command.get("topic").getAsString();
        producer(namesrv).send(new Message(topic, "warm-up", new byte[1]));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench-" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("bench-consumer-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullInterval(0);
        consumer.subscribe(topic, "bench");
        AtomicInteger count = new AtomicInteger();
        Times ages = new Times();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.currentTimeMillis();
            synchronized (ages) {
                for (MessageExt message : messages) {
                    ages.add((now - message.getBornTimestamp()) * 1_000_000L);
                }
            }
            count.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            // The group is assigned its queues before the clock starts.
            long patience = System.currentTimeMillis() + 20_000;
            while (consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().isEmpty()
                && System.currentTimeMillis() < patience) {
                Thread.sleep(50);
            }
            Thread.sleep(1_000);
            long begin = System.nanoTime();
            JsonObject answer = load(command);
            long wanted = answer.get("sent").getAsLong();
            while (count.get() < wanted && System.currentTimeMillis() < patience + 60_000) {
                Thread.sleep(1);
            }
            double took = (System.nanoTime() - begin) / 1e9;
            answer.addProperty("consumed", count.get());
            answer.addProperty("consume_rate", count.get() / took);
            long[] values = Arrays.copyOf(ages.values, ages.count);
            Arrays.sort(values);
            answer.add("end_to_end", quantiles(values));
            return answer;
        } finally {
            consumer.shutdown();
        }
    }
}
