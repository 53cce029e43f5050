package penstock.bench;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages and send results as JSON, and back. */
final class ClientMessages {
    private ClientMessages() {
    }

    static Message message(JsonObject given) {
        Message message = new Message(given.get("topic").getAsString(),
            given.get("body").getAsString().getBytes(StandardCharsets.UTF_8));
        if (given.has("tags")) {
            message.setTags(given.get("tags").getAsString());
        }
        if (given.has("keys")) {
            message.setKeys(given.get("keys").getAsString());
        }
        if (given.has("delay")) {
            message.setDelayTimeLevel(given.get("delay").getAsInt());
        }
        if (given.has("light")) {
            MessageAccessor.putProperty(message, "INNER_MULTI_DISPATCH", given.get("light").getAsString());
        }
        ClientTimers.time(message, given);
        if (given.has("wait")) {
            message.setWaitStoreMsgOK(given.get("wait").getAsBoolean());
        }
        if (given.has("properties")) {
            for (Map.Entry<String, JsonElement> entry : given.getAsJsonObject("properties").entrySet()) {
                message.putUserProperty(entry.getKey(), entry.getValue().getAsString());
            }
        }
        return message;
    }

    static JsonObject result(SendResult sent) {
        JsonObject answer = new JsonObject();
        answer.addProperty("status", String.valueOf(sent.getSendStatus()));
        answer.addProperty("message_id", sent.getMsgId());
        answer.addProperty("offset_message_id", sent.getOffsetMsgId());
        answer.addProperty("transaction_id", sent.getTransactionId());
        answer.addProperty("region", sent.getRegionId());
        answer.addProperty("queue_offset", sent.getQueueOffset());
        String handle = ClientTimers.handle(sent);
        if (handle != null) {
            answer.addProperty("recall_handle", handle);
        }
        if (sent.getMessageQueue() != null) {
            answer.addProperty("topic", sent.getMessageQueue().getTopic());
            answer.addProperty("broker", sent.getMessageQueue().getBrokerName());
            answer.addProperty("queue_id", sent.getMessageQueue().getQueueId());
        }
        return answer;
    }

    static JsonObject received(MessageExt message) {
        JsonObject answer = new JsonObject();
        answer.addProperty("topic", message.getTopic());
        answer.addProperty("queue_id", message.getQueueId());
        answer.addProperty("queue_offset", message.getQueueOffset());
        answer.addProperty("physical_offset", message.getCommitLogOffset());
        answer.addProperty("message_id", message.getMsgId());
        answer.addProperty("tags", message.getTags());
        answer.addProperty("keys", message.getKeys());
        answer.addProperty("reconsume_times", message.getReconsumeTimes());
        answer.addProperty("sys_flag", message.getSysFlag());
        answer.addProperty("body", message.getBody() == null ? "" : new String(message.getBody(), StandardCharsets.UTF_8));
        answer.add("properties", Lines.GSON.toJsonTree(new TreeMap<>(message.getProperties())));
        return answer;
    }

    static JsonArray received(List<MessageExt> messages) {
        JsonArray answer = new JsonArray();
        for (MessageExt message : messages) {
            answer.add(received(message));
        }
        return answer;
    }
}
