package penstock.bench;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/** Puts messages and keeps, for each, what was given and what the store answered. */
final class Puts {
    static final SocketAddress BORN_V4 = new InetSocketAddress("192.168.10.7", 53211);
    static final SocketAddress BORN_V6 = new InetSocketAddress("2001:db8::10:7", 53212);
    static final SocketAddress STORE_V4 = new InetSocketAddress("10.1.2.3", 10911);
    static final SocketAddress STORE_V6 = new InetSocketAddress("fd00:0:0:1:1:2:3:4", 10911);

    private final DefaultMessageStore store;
    private final List<JsonObject> answered = new ArrayList<>();

    // What the next puts share; a scenario sets what it wants to vary.
    SocketAddress bornHost = BORN_V4;
    SocketAddress storeHost = STORE_V4;
    int flag;
    int sysFlag;
    int reconsumeTimes;
    long preparedTransactionOffset;
    long bornTimestamp = System.currentTimeMillis() - 5_000;

    Puts(DefaultMessageStore store) {
        this.store = store;
    }

    /** A body is a unit repeated and cut to a length, so that manifests stay small. */
    static byte[] body(byte[] unit, int length) {
        byte[] body = new byte[length];
        for (int index = 0; index < length; index++) {
            body[index] = unit[index % unit.length];
        }
        return body;
    }

    static JsonObject describeBody(byte[] unit, int length) {
        JsonObject body = new JsonObject();
        body.addProperty("unit", Base64.getEncoder().encodeToString(unit));
        body.addProperty("length", length);
        return body;
    }

    JsonObject put(String topic, int queueId, byte[] unit, int length, Map<String, String> properties) {
        String text = MessageDecoder.messageProperties2String(properties);
        String tags = properties.get("TAGS");
        MessageExt message = Api.newMessage(properties, text, tags == null ? 0 : tags.hashCode());
        fill(message, topic, queueId);
        message.setFlag(flag);
        message.setBody(body(unit, length));
        message.setPreparedTransactionOffset(preparedTransactionOffset);
        JsonObject answer = describe(message, Api.put(store, message));
        answer.addProperty("preparedTransactionOffset", preparedTransactionOffset);
        answer.add("body", describeBody(unit, length));
        answer.add("propertiesGiven", json(properties));
        answer.addProperty("propertiesString", Api.propertiesString(message));
        return keep(answer);
    }

    /** One message of a client batch. */
    static final class Part {
        final byte[] unit;
        final int length;
        final int flag;
        final Map<String, String> properties;

        Part(byte[] unit, int length, int flag, Map<String, String> properties) {
            this.unit = unit;
            this.length = length;
            this.flag = flag;
            this.properties = properties;
        }
    }

    static byte[] encode(String topic, List<Part> parts) {
        List<Message> messages = new ArrayList<>();
        for (Part part : parts) {
            Message message = new Message();
            message.setTopic(topic);
            message.setFlag(part.flag);
            message.setBody(body(part.unit, part.length));
            part.properties.forEach((name, value) -> MessageAccessor.putProperty(message, name, value));
            messages.add(message);
        }
        return MessageDecoder.encodeMessages(messages);
    }

    static JsonArray describe(List<Part> parts) {
        JsonArray array = new JsonArray();
        for (Part part : parts) {
            JsonObject one = new JsonObject();
            one.addProperty("flag", part.flag);
            one.add("body", describeBody(part.unit, part.length));
            one.add("properties", json(part.properties));
            array.add(one);
        }
        return array;
    }

    JsonObject putBatch(String topic, int queueId, List<Part> parts) {
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, topic, queueId);
        batch.setBody(encode(topic, parts));
        JsonObject answer = describe(batch, Api.putBatch(store, batch));
        answer.add("batch", describe(parts));
        return keep(answer);
    }

    /** The whole batch as one record, for a topic with a batch queue. */
    JsonObject putInnerBatch(String topic, int queueId, List<Part> parts, Map<String, String> properties) {
        byte[] encoded = encode(topic, parts);
        sysFlag |= 0x40 | 0x80;
        properties.put("INNER_NUM", String.valueOf(parts.size()));
        try {
            JsonObject answer = put(topic, queueId, encoded, encoded.length, properties);
            answer.add("innerBatch", describe(parts));
            return answer;
        } finally {
            sysFlag &= ~(0x40 | 0x80);
        }
    }

    /** Goes on putting on a thread of its own, until the process ends. Nothing of it is kept. */
    Thread keepWriting() {
        Puts others = new Puts(store);
        Thread thread = new Thread(() -> {
            for (int index = 0; ; index++) {
                others.put("unacknowledged", index % 2, new byte[] {1, 2, 3}, 500, Map.of("KEYS", "late-" + index));
                others.answered.clear();
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** Waits until everything is in queues and index, and the clock has moved on. */
    void awaitDispatch() throws Exception {
        Stores.awaitDispatch(store, end());
        Thread.sleep(2);
    }

    /** Where the last message ends in the log. */
    long end() {
        JsonObject last = answered.get(answered.size() - 1);
        return last.get("physicalOffset").getAsLong() + last.get("wroteBytes").getAsLong();
    }

    JsonArray acknowledged() {
        JsonArray array = new JsonArray();
        answered.forEach(array::add);
        return array;
    }

    private JsonObject keep(JsonObject answer) {
        if (!answer.get("status").getAsString().equals("PUT_OK")) {
            throw new IllegalStateException("the store refused a message: " + answer);
        }
        answered.add(answer);
        return answer;
    }

    private void fill(MessageExt message, String topic, int queueId) {
        message.setTopic(topic);
        message.setQueueId(queueId);
        message.setSysFlag(sysFlag);
        message.setBornTimestamp(bornTimestamp++);
        message.setBornHost(bornHost);
        message.setStoreHost(storeHost);
        message.setReconsumeTimes(reconsumeTimes);
        // The broker sets these before it puts, as the encoder chooses the width of the host fields by them.
        if (bornHost == BORN_V6) {
            message.setBornHostV6Flag();
        }
        if (storeHost == STORE_V6) {
            message.setStoreHostAddressV6Flag();
        }
    }

    private static JsonObject describe(MessageExt message, PutMessageResult result) {
        JsonObject answer = new JsonObject();
        answer.addProperty("topic", message.getTopic());
        answer.addProperty("queueId", message.getQueueId());
        answer.addProperty("status", result.getPutMessageStatus().name());
        AppendMessageResult append = result.getAppendMessageResult();
        if (append != null) {
            answer.addProperty("appendStatus", append.getStatus().name());
            answer.addProperty("queueOffset", append.getLogicsOffset());
            answer.addProperty("physicalOffset", append.getWroteOffset());
            answer.addProperty("wroteBytes", append.getWroteBytes());
            answer.addProperty("storeTimestamp", append.getStoreTimestamp());
            answer.addProperty("msgId", append.getMsgId());
            answer.addProperty("msgNum", append.getMsgNum());
        }
        answer.addProperty("flag", message.getFlag());
        answer.addProperty("sysFlag", message.getSysFlag());
        answer.addProperty("bornTimestamp", message.getBornTimestamp());
        answer.addProperty("bornHost", Answers.host(message.getBornHost()));
        answer.addProperty("storeHost", Answers.host(message.getStoreHost()));
        answer.addProperty("reconsumeTimes", message.getReconsumeTimes());
        return answer;
    }

    private static JsonObject json(Map<String, String> properties) {
        JsonObject object = new JsonObject();
        properties.forEach(object::addProperty);
        return object;
    }
}
