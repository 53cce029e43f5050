package penstock.bench;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers by name. Each keeps what it received in the order in which its listener saw it. */
final class ClientConsumers {
    private static final class Running {
        DefaultMQPushConsumer consumer;
        DefaultMQProducer replies;
        final List<JsonObject> seen = new ArrayList<>();
        int failures;
        int sleeps;
        long sleepMillis;

        /** The first so many calls of the listener take their time, whatever becomes of their messages meanwhile. */
        void dawdle() {
            synchronized (this) {
                if (sleeps <= 0) {
                    return;
                }
                sleeps--;
            }
            try {
                Thread.sleep(sleepMillis);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }

        synchronized boolean take(List<MessageExt> messages) {
            for (MessageExt message : messages) {
                JsonObject received = ClientMessages.received(message);
                received.addProperty("at", System.currentTimeMillis());
                seen.add(received);
            }
            notifyAll();
            if (failures > 0) {
                failures--;
                return false;
            }
            return true;
        }
    }

    private final Map<String, Running> consumers = new HashMap<>();

    ClientConsumers(Map<String, Lines.Handler> commands) {
        commands.put("consumer", this::start);
        commands.put("stop-consumer", this::stop);
        commands.put("received", this::received);
        commands.put("assigned", this::assigned);
    }

    private JsonObject start(JsonObject command) throws Exception {
        Running running = new Running();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.get("group").getAsString(),
            ClientIdentity.hook(command), new AllocateMessageQueueAveragely());
        running.consumer = consumer;
        running.failures = (int) Lines.number(command, "failures", 0);
        running.sleeps = (int) Lines.number(command, "sleeps", 0);
        running.sleepMillis = Lines.number(command, "sleep_ms", 0);
        consumer.setNamesrvAddr(command.get("namesrv").getAsString());
        consumer.setInstanceName(command.get("name").getAsString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
            Lines.text(command, "from", "CONSUME_FROM_FIRST_OFFSET")));
        if (command.has("max_reconsume")) {
            consumer.setMaxReconsumeTimes(command.get("max_reconsume").getAsInt());
        }
        if (command.has("suspend_ms")) {
            consumer.setSuspendCurrentQueueTimeMillis(command.get("suspend_ms").getAsLong());
        }
        if (Lines.flag(command, "pop")) {
            pop(consumer, Lines.number(command, "invisible_ms", 60_000));
        }
        if (Lines.flag(command, "broadcast")) {
            broadcast(consumer);
        }
        String topic = command.get("topic").getAsString();
        if (command.has("sql")) {
            consumer.subscribe(topic, MessageSelector.bySql(command.get("sql").getAsString()));
        } else {
            consumer.subscribe(topic, Lines.text(command, "tags", "*"));
        }
        if (Lines.flag(command, "replies")) {
            running.replies = new DefaultMQProducer(command.get("group").getAsString() + "-replies");
            running.replies.setNamesrvAddr(command.get("namesrv").getAsString());
            running.replies.setInstanceName(command.get("name").getAsString() + "-replies");
            running.replies.start();
        }
        long delayLevel = Lines.number(command, "retry_level", 0);
        if (Lines.flag(command, "orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> running.take(messages)
                ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume((int) delayLevel);
                boolean taken = running.take(messages);
                running.dawdle();
                if (taken && running.replies != null) {
                    reply(running.replies, messages);
                }
                return taken ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        consumers.put(command.get("name").getAsString(), running);
        return new JsonObject();
    }

    private static void reply(DefaultMQProducer producer, List<MessageExt> requests) {
        for (MessageExt request : requests) {
            try {
                Message reply = MessageUtil.createReplyMessage(request,
                    ("reply to " + new String(request.getBody())).getBytes());
                producer.send(reply, new SendCallback() {
                    @Override
                    public void onSuccess(SendResult sent) {
                    }

                    @Override
                    public void onException(Throwable error) {
                        error.printStackTrace();
                    }
                });
            } catch (Exception error) {
                error.printStackTrace();
            }
        }
    }

    /** The broker says who consumes what, and how; 4.9 knows nothing of it. */
    static void pop(DefaultMQPushConsumer consumer, long invisibleMillis) throws Exception {
        DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        DefaultMQPushConsumer.class.getMethod("setPopInvisibleTime", long.class).invoke(consumer, invisibleMillis);
    }

    /** Whether a consumer was told what to pop. */
    static boolean pops(DefaultMQPushConsumer consumer) throws Exception {
        RebalanceImpl rebalance = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl();
        return !((Map<?, ?>) RebalanceImpl.class.getMethod("getPopProcessQueueTable").invoke(rebalance)).isEmpty();
    }

    /** The enumeration moved to another package between 4.9 and 5. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, Enum.valueOf((Class) method.getParameterTypes()[0], "BROADCASTING"));
            }
        }
    }

    private JsonObject stop(JsonObject command) {
        Running running = ClientDriver.named(consumers, command);
        running.consumer.shutdown();
        if (running.replies != null) {
            running.replies.shutdown();
        }
        consumers.remove(command.get("name").getAsString());
        return answer(running);
    }

    /** Waits until so many messages were seen, or the time is over: what was seen either way. */
    private JsonObject received(JsonObject command) throws Exception {
        Running running = ClientDriver.named(consumers, command);
        long wanted = Lines.number(command, "count", 1);
        long end = System.currentTimeMillis() + Lines.number(command, "timeout_ms", 30_000);
        synchronized (running) {
            while (running.seen.size() < wanted && System.currentTimeMillis() < end) {
                running.wait(Math.max(1, end - System.currentTimeMillis()));
            }
        }
        return answer(running);
    }

    private static JsonObject answer(Running running) {
        JsonArray messages = new JsonArray();
        synchronized (running) {
            running.seen.forEach(messages::add);
        }
        JsonObject answer = new JsonObject();
        answer.add("messages", messages);
        return answer;
    }

    /** Which queues of its topic the consumer holds now. */
    private JsonObject assigned(JsonObject command) throws Exception {
        Running running = ClientDriver.named(consumers, command);
        JsonArray queues = new JsonArray();
        running.consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(command.get("topic").getAsString()))
            .map(queue -> queue.getQueueId()).sorted().forEach(queues::add);
        JsonObject answer = new JsonObject();
        answer.add("queues", queues);
        return answer;
    }
}
