package penstock.bench;

import com.google.gson.JsonObject;
import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.StoreCheckpoint;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What differs between RocketMQ 4.9.7 (this file) and 5.5.0 (its namesake under src/v5). */
final class Api {
    static final String VERSION = "4.9.7";
    static final boolean V5 = false;

    private Api() {
    }

    static DefaultMessageStore newStore(MessageStoreConfig config, Set<String> batchQueueTopics) throws Exception {
        if (!batchQueueTopics.isEmpty()) {
            throw new IllegalArgumentException("4.9.7 has no batch consume queue");
        }
        return new DefaultMessageStore(config, new BrokerStatsManager("penstock", false),
            (topic, queueId, offset, tagsCode, time, bits, properties) -> { }, new BrokerConfig());
    }

    static MessageExt newMessage(Map<String, String> properties, String propertiesString, long tagsCode) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        MessageAccessor.setProperties(message, new HashMap<>(properties));
        message.setPropertiesString(propertiesString);
        message.setTagsCode(tagsCode);
        return message;
    }

    static String propertiesString(MessageExt message) {
        return ((MessageExtBrokerInner) message).getPropertiesString();
    }

    static PutMessageResult put(DefaultMessageStore store, MessageExt message) {
        return store.putMessage((MessageExtBrokerInner) message);
    }

    static PutMessageResult putBatch(DefaultMessageStore store, MessageExtBatch batch) {
        return store.putMessages(batch);
    }

    static long maxOffset(DefaultMessageStore store, String topic, int queueId) {
        return store.getMaxOffsetInQueue(topic, queueId);
    }

    static long reputFromOffset(DefaultMessageStore store) throws Exception {
        Field service = DefaultMessageStore.class.getDeclaredField("reputMessageService");
        service.setAccessible(true);
        Object reput = service.get(store);
        Field offset = reput.getClass().getDeclaredField("reputFromOffset");
        offset.setAccessible(true);
        return offset.getLong(reput);
    }

    /** 4.9.7 does not say. */
    static Long flushedWhere(DefaultMessageStore store) {
        return null;
    }

    static Map<String, Map<Integer, String>> queues(DefaultMessageStore store) {
        Map<String, Map<Integer, String>> found = new TreeMap<>();
        store.getConsumeQueueTable().forEach((topic, queues) -> {
            Map<Integer, String> types = new TreeMap<>();
            queues.forEach((queueId, queue) -> types.put(queueId, "SimpleCQ"));
            found.put(topic, types);
        });
        return found;
    }

    static void offsetByTime(DefaultMessageStore store, String topic, int queueId, long time, JsonObject into) {
        into.addProperty("nearest", store.getOffsetInQueueByTime(topic, queueId, time));
    }

    static JsonObject checkpoint(StoreCheckpoint checkpoint) {
        JsonObject values = new JsonObject();
        values.addProperty("physicMsgTimestamp", checkpoint.getPhysicMsgTimestamp());
        values.addProperty("logicsMsgTimestamp", checkpoint.getLogicsMsgTimestamp());
        values.addProperty("indexMsgTimestamp", checkpoint.getIndexMsgTimestamp());
        return values;
    }
}
