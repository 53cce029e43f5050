package penstock.bench;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.net.Inet6Address;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;

/** What an open store answers, as JSON. Only the store's own API is asked; no file is parsed here. */
final class Answers {
    private final DefaultMessageStore store;

    Answers(DefaultMessageStore store) {
        this.store = store;
    }

    /** Everything: offsets, queues, each message of each queue, answers to a set of questions about them. */
    JsonObject all(JsonObject command) throws Exception {
        JsonObject answer = offsets();
        JsonArray queues = new JsonArray();
        JsonArray messages = new JsonArray();
        JsonArray gets = new JsonArray();
        JsonArray times = new JsonArray();
        Set<List<String>> keys = new LinkedHashSet<>();
        for (Map.Entry<String, Map<Integer, String>> topic : Api.queues(store).entrySet()) {
            for (Map.Entry<Integer, String> queue : topic.getValue().entrySet()) {
                JsonObject one = queue(topic.getKey(), queue.getKey(), queue.getValue());
                queues.add(one);
                List<JsonObject> found = messages(topic.getKey(), queue.getKey());
                found.forEach(messages::add);
                questions(one, gets);
                times(one, found, times);
                found.forEach(message -> collectKeys(message, keys));
            }
        }
        answer.add("queues", queues);
        answer.add("messages", messages);
        answer.add("getMessage", gets);
        answer.add("offsetByTime", times);
        if (command.has("keys")) {
            keys.clear();
            for (JsonElement pair : command.getAsJsonArray("keys")) {
                keys.add(List.of(pair.getAsJsonArray().get(0).getAsString(), pair.getAsJsonArray().get(1).getAsString()));
            }
        }
        JsonArray queries = new JsonArray();
        for (List<String> key : keys) {
            queries.add(query(key.get(0), key.get(1)));
        }
        answer.add("queryMessage", queries);
        if (command.has("lookups")) {
            JsonArray lookups = new JsonArray();
            for (JsonElement offset : command.getAsJsonArray("lookups")) {
                lookups.add(look(offset.getAsLong()));
            }
            answer.add("lookMessageByOffset", lookups);
        }
        return answer;
    }

    JsonObject offsets() throws Exception {
        JsonObject answer = new JsonObject();
        answer.addProperty("minPhysicalOffset", store.getMinPhyOffset());
        answer.addProperty("maxPhysicalOffset", store.getMaxPhyOffset());
        answer.addProperty("confirmOffset", store.getConfirmOffset());
        answer.addProperty("flushedWhere", Api.flushedWhere(store));
        answer.addProperty("reputFromOffset", Api.reputFromOffset(store));
        answer.add("checkpoint", Api.checkpoint(store.getStoreCheckpoint()));
        return answer;
    }

    private JsonObject queue(String topic, int queueId, String type) throws Exception {
        JsonObject queue = new JsonObject();
        queue.addProperty("topic", topic);
        queue.addProperty("queueId", queueId);
        queue.addProperty("minOffset", store.getMinOffsetInQueue(topic, queueId));
        queue.addProperty("maxOffset", Api.maxOffset(store, topic, queueId));
        queue.addProperty("type", type);
        return queue;
    }

    /** Each message of a queue, in queue order, read 32 a call from its beginning to its end. */
    private List<JsonObject> messages(String topic, int queueId) throws Exception {
        List<JsonObject> found = new ArrayList<>();
        long offset = store.getMinOffsetInQueue(topic, queueId);
        long end = Api.maxOffset(store, topic, queueId);
        while (offset < end) {
            GetMessageResult result = store.getMessage("penstock", topic, queueId, offset, 32, null);
            try {
                for (ByteBuffer buffer : result.getMessageBufferList()) {
                    JsonObject message = describe(buffer);
                    message.addProperty("queue", topic);
                    found.add(message);
                }
                if (result.getNextBeginOffset() <= offset) {
                    throw new IllegalStateException(topic + "-" + queueId + " stands at " + offset + " with " + result.getStatus());
                }
                offset = result.getNextBeginOffset();
            } finally {
                result.release();
            }
        }
        return found;
    }

    private void questions(JsonObject queue, JsonArray into) {
        long min = queue.get("minOffset").getAsLong();
        long max = queue.get("maxOffset").getAsLong();
        long[][] asked = {{min, 32}, {min, 1}, {(min + max) / 2, 32}, {max - 1, 32}, {max, 32}, {max + 7, 32}, {min - 1, 32}};
        for (long[] question : asked) {
            JsonObject one = new JsonObject();
            String topic = queue.get("topic").getAsString();
            int queueId = queue.get("queueId").getAsInt();
            GetMessageResult result = store.getMessage("penstock", topic, queueId, question[0], (int) question[1], null);
            try {
                one.addProperty("topic", topic);
                one.addProperty("queueId", queueId);
                one.addProperty("offset", question[0]);
                one.addProperty("max", question[1]);
                one.addProperty("status", result.getStatus().name());
                one.addProperty("nextBeginOffset", result.getNextBeginOffset());
                one.addProperty("minOffset", result.getMinOffset());
                one.addProperty("maxOffset", result.getMaxOffset());
                JsonArray physical = new JsonArray();
                result.getMessageBufferList().forEach(buffer -> physical.add(buffer.getLong(buffer.position() + 28)));
                one.add("physicalOffsets", physical);
                into.add(one);
            } finally {
                result.release();
            }
        }
    }

    private void times(JsonObject queue, List<JsonObject> messages, JsonArray into) {
        if (messages.isEmpty()) {
            return;
        }
        Set<Long> asked = new LinkedHashSet<>();
        asked.add(0L);
        for (int index : new int[] {0, messages.size() / 3, messages.size() / 2, messages.size() - 1}) {
            long time = messages.get(index).get("storeTimestamp").getAsLong();
            Collections.addAll(asked, time - 1, time, time + 1);
        }
        for (long time : asked) {
            JsonObject one = new JsonObject();
            one.add("topic", queue.get("topic"));
            one.add("queueId", queue.get("queueId"));
            one.addProperty("timestamp", time);
            Api.offsetByTime(store, queue.get("topic").getAsString(), queue.get("queueId").getAsInt(), time, one);
            into.add(one);
        }
    }

    private static void collectKeys(JsonObject message, Set<List<String>> into) {
        JsonObject properties = message.getAsJsonObject("properties");
        String topic = message.get("topic").getAsString();
        String keys = Lines.text(properties, MessageConst.PROPERTY_KEYS, "");
        for (String key : keys.split(MessageConst.KEY_SEPARATOR)) {
            if (!key.isEmpty()) {
                into.add(List.of(topic, key));
            }
        }
        String unique = Lines.text(properties, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, "");
        if (!unique.isEmpty()) {
            into.add(List.of(topic, unique));
        }
    }

    JsonObject query(String topic, String key) {
        JsonObject one = new JsonObject();
        one.addProperty("topic", topic);
        one.addProperty("key", key);
        List<Long> offsets = new ArrayList<>();
        QueryMessageResult result = store.queryMessage(topic, key, 64, 0, System.currentTimeMillis() + 3_600_000);
        if (result != null) {
            try {
                result.getMessageBufferList().forEach(buffer -> offsets.add(buffer.getLong(buffer.position() + 28)));
            } finally {
                result.release();
            }
        }
        Collections.sort(offsets);
        JsonArray sorted = new JsonArray();
        offsets.forEach(sorted::add);
        one.add("physicalOffsets", sorted);
        return one;
    }

    JsonObject look(long offset) {
        MessageExt message = store.lookMessageByOffset(offset);
        JsonObject one = message == null ? new JsonObject() : fields(message);
        one.addProperty("offset", offset);
        one.addProperty("found", message != null);
        return one;
    }

    private static JsonObject describe(ByteBuffer buffer) throws Exception {
        byte[] record = new byte[buffer.remaining()];
        buffer.duplicate().get(record);
        MessageExt message = MessageDecoder.decode(ByteBuffer.wrap(record), true, false);
        JsonObject one = fields(message);
        StringBuilder digest = new StringBuilder();
        for (byte value : MessageDigest.getInstance("MD5").digest(record)) {
            digest.append(String.format("%02x", value));
        }
        one.addProperty("recordMd5", digest.toString());
        return one;
    }

    static JsonObject fields(MessageExt message) {
        JsonObject one = new JsonObject();
        one.addProperty("topic", message.getTopic());
        one.addProperty("queueId", message.getQueueId());
        one.addProperty("queueOffset", message.getQueueOffset());
        one.addProperty("physicalOffset", message.getCommitLogOffset());
        one.addProperty("size", message.getStoreSize());
        one.addProperty("bodyCRC", message.getBodyCRC());
        one.addProperty("flag", message.getFlag());
        one.addProperty("sysFlag", message.getSysFlag());
        one.addProperty("bornTimestamp", message.getBornTimestamp());
        one.addProperty("bornHost", host(message.getBornHost()));
        one.addProperty("storeTimestamp", message.getStoreTimestamp());
        one.addProperty("storeHost", host(message.getStoreHost()));
        one.addProperty("reconsumeTimes", message.getReconsumeTimes());
        one.addProperty("preparedTransactionOffset", message.getPreparedTransactionOffset());
        // The client's class answers with the unique key under the same name: make the id from its parts.
        one.addProperty("msgId", MessageDecoder.createMessageId(message.getStoreHost(), message.getCommitLogOffset()));
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        one.addProperty("body", Base64.getEncoder().encodeToString(body));
        JsonObject properties = new JsonObject();
        new TreeMap<>(message.getProperties() == null ? Map.of() : message.getProperties()).forEach(properties::addProperty);
        one.add("properties", properties);
        return one;
    }

    static String host(SocketAddress address) {
        InetSocketAddress place = (InetSocketAddress) address;
        String text = place.getAddress().getHostAddress();
        return (place.getAddress() instanceof Inet6Address ? "[" + text.split("%")[0] + "]" : text) + ":" + place.getPort();
    }
}
