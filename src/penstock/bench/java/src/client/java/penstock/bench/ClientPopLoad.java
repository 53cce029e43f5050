package penstock.bench;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Consumers of one group that pop: how fast they take what is there, every message acked by itself. */
final class ClientPopLoad {
    private static final int BATCH = 64;
    private static final long PATIENCE = 120_000;

    ClientPopLoad(Map<String, Lines.Handler> commands) {
        commands.put("pop-load", ClientPopLoad::popLoad);
    }

    /** The group pops by order of the broker: "mqadmin setConsumeMode" comes first. */
    private static JsonObject popLoad(JsonObject command) throws Exception {
        String namesrv = command.get("namesrv").getAsString();
        String topic = command.get("topic").getAsString();
        int wanted = command.get("messages").getAsInt();
        AtomicInteger count = new AtomicInteger();
        AtomicLong first = new AtomicLong();
        AtomicInteger before = new AtomicInteger(Integer.MAX_VALUE);
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        try {
            for (int i = 0; i < (int) Lines.number(command, "consumers", 1); i++) {
                consumers.add(consumer(command, namesrv, topic, i, count, before, first));
            }
            for (DefaultMQPushConsumer consumer : consumers) {
                awaitQueues(consumer);
            }
            // They stand still while the topic is filled; only the pops that wait already get a little.
            consumers.forEach(DefaultMQPushConsumer::suspend);
            fill(namesrv, topic, (int) Lines.number(command, "size", 1024), wanted);
            Thread.sleep(2_000);
            before.set(count.get());
            consumers.forEach(DefaultMQPushConsumer::resume);
            long patience = System.currentTimeMillis() + PATIENCE;
            while (count.get() < wanted && System.currentTimeMillis() < patience) {
                Thread.sleep(1);
            }
            double took = (System.nanoTime() - first.get()) / 1e9;
            JsonObject answer = new JsonObject();
            answer.addProperty("sent", wanted);
            answer.addProperty("failed", Math.max(0, wanted - count.get()));
            answer.addProperty("consumed", count.get() - before.get());
            answer.addProperty("seconds", took);
            answer.addProperty("rate", (count.get() - before.get()) / took);
            return answer;
        } finally {
            for (DefaultMQPushConsumer consumer : consumers) {
                consumer.shutdown();
            }
        }
    }

    private static DefaultMQPushConsumer consumer(JsonObject command, String namesrv, String topic, int number,
        AtomicInteger count, AtomicInteger before, AtomicLong first) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.get("group").getAsString());
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("pop-" + number + "-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.setConsumeMessageBatchMaxSize(32);
        ClientConsumers.pop(consumer, 60_000);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (count.addAndGet(messages.size()) > before.get()) {
                first.compareAndSet(0, System.nanoTime());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static void awaitQueues(DefaultMQPushConsumer consumer) throws Exception {
        long patience = System.currentTimeMillis() + 30_000;
        while (!ClientConsumers.pops(consumer) && System.currentTimeMillis() < patience) {
            Thread.sleep(50);
        }
    }

    private static void fill(String namesrv, String topic, int size, int wanted) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("pop-fill");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("pop-fill-" + System.nanoTime());
        producer.setSendMsgTimeout(10_000);
        producer.start();
        byte[] body = new byte[size];
        Arrays.fill(body, (byte) 'x');
        try {
            for (int sent = 0; sent < wanted; sent += BATCH) {
                List<Message> batch = new ArrayList<>(BATCH);
                for (int i = 0; i < Math.min(BATCH, wanted - sent); i++) {
                    batch.add(new Message(topic, "bench", body));
                }
                producer.send(batch);
            }
        } finally {
            producer.shutdown();
        }
    }
}
