package penstock.bench;

import com.google.gson.JsonObject;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages with a time of their own. The client of 4.9 knows none: its methods are found by name. */
final class ClientTimers {
    private static final String DELIVER = "TIMER_DELIVER_MS";

    ClientTimers(Map<String, Lines.Handler> commands) {
        commands.put("timers", this::timers);
    }

    /** Give a message the time that a command asks for. */
    static void time(Message message, JsonObject given) {
        set(message, given, "delay_ms", "setDelayTimeMs");
        set(message, given, "delay_sec", "setDelayTimeSec");
        set(message, given, "deliver_ms", "setDeliverTimeMs");
        if (given.has("deliver_in_ms")) {
            JsonObject absolute = new JsonObject();
            absolute.addProperty("deliver_ms", System.currentTimeMillis() + given.get("deliver_in_ms").getAsLong());
            set(message, absolute, "deliver_ms", "setDeliverTimeMs");
        }
    }

    private static void set(Message message, JsonObject given, String name, String method) {
        if (given.has(name)) {
            call(message, method, new Class<?>[] {long.class}, given.get(name).getAsLong());
        }
    }

    /** What takes the message back; null when the client or the broker gives none. */
    static String handle(SendResult sent) {
        try {
            return (String) SendResult.class.getMethod("getRecallHandle").invoke(sent);
        } catch (ReflectiveOperationException error) {
            return null;
        }
    }

    static String recall(DefaultMQProducer producer, String topic, String handle) throws Exception {
        try {
            return (String) DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer, topic, handle);
        } catch (InvocationTargetException error) {
            throw (Exception) error.getCause();
        }
    }

    private static void call(Object thing, String method, Class<?>[] kinds, Object... arguments) {
        try {
            thing.getClass().getMethod(method, kinds).invoke(thing, arguments);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /**
     * Send messages that are due evenly over a span of time and wait for all of them: how late each arrived at
     * the consumer, in milliseconds behind the time it was sent for.
     */
    private JsonObject timers(JsonObject command) throws Exception {
        String topic = command.get("topic").getAsString();
        String namesrv = command.get("namesrv").getAsString();
        int count = command.get("count").getAsInt();
        int senders = (int) Lines.number(command, "senders", 16);
        long span = command.get("span_ms").getAsLong();
        byte[] body = new byte[(int) Lines.number(command, "size", 128)];
        String run = Long.toString(System.nanoTime(), 36);
        DefaultMQProducer producer = new DefaultMQProducer("timers-" + run);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("timers-" + run);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        producer.send(new Message(topic, "first", body));

        AtomicIntegerArray times = new AtomicIntegerArray(count);
        long[] due = new long[count];
        long[] acked = new long[count];
        long[] arrived = new long[count];
        AtomicInteger twice = new AtomicInteger();
        CountDownLatch open = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("timers-" + run);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("consumer-" + run);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.currentTimeMillis();
            for (MessageExt message : messages) {
                String number = message.getUserProperty("number");
                if (number == null) {
                    continue;
                }
                int place = Integer.parseInt(number);
                if (times.incrementAndGet(place) > 1) {
                    twice.incrementAndGet();
                    continue;
                }
                arrived[place] = now;
                open.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();

        long begin = System.currentTimeMillis();
        long first = begin + command.get("lead_ms").getAsLong();
        AtomicInteger next = new AtomicInteger();
        AtomicInteger failed = new AtomicInteger();
        Thread[] threads = new Thread[senders];
        for (int i = 0; i < senders; i++) {
            threads[i] = new Thread(() -> {
                for (int number = next.getAndIncrement(); number < count; number = next.getAndIncrement()) {
                    Message message = new Message(topic, body);
                    message.putUserProperty("number", Integer.toString(number));
                    due[number] = first + ThreadLocalRandom.current().nextLong(span);
                    MessageAccessor.putProperty(message, DELIVER, Long.toString(due[number]));
                    try {
                        producer.send(message);
                        acked[number] = System.currentTimeMillis();
                    } catch (Exception error) {
                        failed.incrementAndGet();
                    }
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        long sent = System.currentTimeMillis();
        long patience = first + span + Lines.number(command, "patience_ms", 60_000) - sent;
        boolean all = open.await(patience, TimeUnit.MILLISECONDS);
        consumer.shutdown();
        producer.shutdown();
        // What was sent behind its own time could not be on time: it is late from its answer on.
        long[] sorted = new long[count];
        long early = 0;
        for (int i = 0; i < count; i++) {
            early += arrived[i] < due[i] ? 1 : 0;
            sorted[i] = Math.max(0, arrived[i] - Math.max(due[i], acked[i]));
        }
        Arrays.sort(sorted);
        JsonObject answer = new JsonObject();
        answer.addProperty("failed", failed.get());
        answer.addProperty("missing", all ? 0 : open.getCount());
        answer.addProperty("twice", twice.get());
        answer.addProperty("early", all ? early : -1);
        answer.addProperty("send_ms", sent - begin);
        answer.addProperty("in_time", sent < first);
        for (int i = 0; i < sorted.length; i++) {
            sorted[i] *= 1_000_000;
        }
        ClientLoad.quantiles(sorted).entrySet().forEach(entry -> answer.add(entry.getKey(), entry.getValue()));
        answer.addProperty("most_ms", sorted[sorted.length - 1] / 1_000_000);
        return answer;
    }
}
