package penstock.bench;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Lite pull consumers, the old pull consumer, and questions about offsets. */
final class ClientPulls {
    private final Map<String, DefaultLitePullConsumer> lites = new HashMap<>();
    private final Map<String, DefaultMQPullConsumer> pulls = new HashMap<>();

    ClientPulls(Map<String, Lines.Handler> commands) {
        commands.put("lite", this::startLite);
        commands.put("poll", this::poll);
        commands.put("seek", this::seek);
        commands.put("stop-lite", this::stopLite);
        commands.put("puller", this::startPull);
        commands.put("pull", this::pull);
        commands.put("offsets", this::offsets);
        commands.put("stop-puller", this::stopPull);
    }

    private JsonObject startLite(JsonObject command) throws Exception {
        DefaultLitePullConsumer lite = new DefaultLitePullConsumer(command.get("group").getAsString());
        lite.setNamesrvAddr(command.get("namesrv").getAsString());
        lite.setInstanceName(command.get("name").getAsString());
        lite.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        String topic = command.get("topic").getAsString();
        boolean assigns = Lines.flag(command, "assign");
        if (command.has("sql")) {
            lite.subscribe(topic, MessageSelector.bySql(command.get("sql").getAsString()));
        } else if (!assigns) {
            lite.subscribe(topic, Lines.text(command, "tags", "*"));
        }
        lite.start();
        if (assigns) {
            lite.assign(lite.fetchMessageQueues(topic));
        }
        lites.put(command.get("name").getAsString(), lite);
        return new JsonObject();
    }

    private JsonObject poll(JsonObject command) throws Exception {
        DefaultLitePullConsumer lite = ClientDriver.named(lites, command);
        long wanted = Lines.number(command, "count", 1);
        long end = System.currentTimeMillis() + Lines.number(command, "timeout_ms", 20_000);
        List<MessageExt> seen = new ArrayList<>();
        while (seen.size() < wanted && System.currentTimeMillis() < end) {
            seen.addAll(lite.poll(500));
        }
        if (Lines.flag(command, "commit")) {
            lite.commitSync();
        }
        JsonObject answer = new JsonObject();
        answer.add("messages", ClientMessages.received(seen));
        return answer;
    }

    private JsonObject seek(JsonObject command) throws Exception {
        DefaultLitePullConsumer lite = ClientDriver.named(lites, command);
        for (MessageQueue queue : lite.fetchMessageQueues(command.get("topic").getAsString())) {
            if (command.has("time")) {
                lite.seek(queue, lite.offsetForTimestamp(queue, command.get("time").getAsLong()));
            } else {
                lite.seekToBegin(queue);
            }
        }
        return new JsonObject();
    }

    private JsonObject stopLite(JsonObject command) {
        ClientDriver.named(lites, command).shutdown();
        lites.remove(command.get("name").getAsString());
        return new JsonObject();
    }

    private JsonObject startPull(JsonObject command) throws Exception {
        DefaultMQPullConsumer puller = new DefaultMQPullConsumer(command.get("group").getAsString());
        puller.setNamesrvAddr(command.get("namesrv").getAsString());
        puller.setInstanceName(command.get("name").getAsString());
        puller.start();
        pulls.put(command.get("name").getAsString(), puller);
        return new JsonObject();
    }

    private MessageQueue queue(DefaultMQPullConsumer puller, JsonObject command) throws Exception {
        for (MessageQueue queue : puller.fetchSubscribeMessageQueues(command.get("topic").getAsString())) {
            if (queue.getQueueId() == command.get("queue_id").getAsInt()) {
                // A light queue has no route of its own: it lies where the topic does.
                return command.has("light")
                    ? new MessageQueue(command.get("light").getAsString(), queue.getBrokerName(), 0) : queue;
            }
        }
        throw new IllegalArgumentException("no such queue: " + command);
    }

    private JsonObject pull(JsonObject command) throws Exception {
        DefaultMQPullConsumer puller = ClientDriver.named(pulls, command);
        try {
            PullResult pulled = puller.pull(queue(puller, command), Lines.text(command, "tags", "*"),
                command.get("offset").getAsLong(), (int) Lines.number(command, "count", 32));
            JsonObject answer = new JsonObject();
            answer.addProperty("status", String.valueOf(pulled.getPullStatus()));
            answer.addProperty("next", pulled.getNextBeginOffset());
            answer.addProperty("min", pulled.getMinOffset());
            answer.addProperty("max", pulled.getMaxOffset());
            List<MessageExt> found = pulled.getMsgFoundList();
            answer.add("messages", ClientMessages.received(found == null ? List.of() : found));
            return answer;
        } catch (MQBrokerException | MQClientException error) {
            return ClientProducers.failure(error);
        }
    }

    private JsonObject offsets(JsonObject command) throws Exception {
        DefaultMQPullConsumer puller = ClientDriver.named(pulls, command);
        JsonArray queues = new JsonArray();
        List<MessageQueue> sorted = new ArrayList<>(
            puller.fetchSubscribeMessageQueues(command.get("topic").getAsString()));
        sorted.sort(null);
        for (MessageQueue queue : sorted) {
            JsonObject answer = new JsonObject();
            answer.addProperty("queue_id", queue.getQueueId());
            answer.addProperty("min", puller.minOffset(queue));
            answer.addProperty("max", puller.maxOffset(queue));
            answer.addProperty("committed", puller.fetchConsumeOffset(queue, true));
            answer.addProperty("from_zero", puller.searchOffset(queue, 0));
            answer.addProperty("from_now", puller.searchOffset(queue, System.currentTimeMillis() + 60_000));
            queues.add(answer);
        }
        JsonObject answer = new JsonObject();
        answer.add("queues", queues);
        return answer;
    }

    private JsonObject stopPull(JsonObject command) {
        ClientDriver.named(pulls, command).shutdown();
        pulls.remove(command.get("name").getAsString());
        return new JsonObject();
    }
}
