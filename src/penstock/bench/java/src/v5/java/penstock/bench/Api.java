package penstock.bench;

import com.google.gson.JsonObject;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicAttributes;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.StoreCheckpoint;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What differs between RocketMQ 5.5.0 (this file) and 4.9.7 (its namesake under src/v4). */
final class Api {
    static final String VERSION = "5.5.0";
    static final boolean V5 = true;

    private Api() {
    }

    static DefaultMessageStore newStore(MessageStoreConfig config, Set<String> batchQueueTopics) throws Exception {
        BrokerConfig broker = new BrokerConfig();
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        for (String topic : batchQueueTopics) {
            TopicConfig one = new TopicConfig(topic);
            one.getAttributes().put(TopicAttributes.QUEUE_TYPE_ATTRIBUTE.getName(), CQType.BatchCQ.toString());
            topics.put(topic, one);
        }
        return new DefaultMessageStore(config, new BrokerStatsManager("penstock", false),
            (topic, queueId, offset, tagsCode, time, bits, properties) -> { }, broker, topics);
    }

    static MessageExt newMessage(Map<String, String> properties, String propertiesString, long tagsCode) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        // 5.x looks into the map before anything else: an empty one is fine, none is an error.
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

    static long maxOffset(DefaultMessageStore store, String topic, int queueId) throws Exception {
        return store.getMaxOffsetInQueue(topic, queueId);
    }

    static long reputFromOffset(DefaultMessageStore store) {
        return store.getReputFromOffset();
    }

    static Long flushedWhere(DefaultMessageStore store) {
        return store.getFlushedWhere();
    }

    /** Queue type by topic and queue id. */
    static Map<String, Map<Integer, String>> queues(DefaultMessageStore store) {
        Map<String, Map<Integer, String>> found = new TreeMap<>();
        store.getConsumeQueueTable().forEach((topic, queues) -> {
            Map<Integer, String> types = new TreeMap<>();
            queues.forEach((queueId, queue) -> types.put(queueId, queue.getCQType().toString()));
            found.put(topic, types);
        });
        return found;
    }

    static void offsetByTime(DefaultMessageStore store, String topic, int queueId, long time, JsonObject into) {
        into.addProperty("lower", store.getOffsetInQueueByTime(topic, queueId, time, BoundaryType.LOWER));
        into.addProperty("upper", store.getOffsetInQueueByTime(topic, queueId, time, BoundaryType.UPPER));
    }

    static JsonObject checkpoint(StoreCheckpoint checkpoint) {
        JsonObject values = new JsonObject();
        values.addProperty("physicMsgTimestamp", checkpoint.getPhysicMsgTimestamp());
        values.addProperty("logicsMsgTimestamp", checkpoint.getLogicsMsgTimestamp());
        values.addProperty("indexMsgTimestamp", checkpoint.getIndexMsgTimestamp());
        values.addProperty("masterFlushedOffset", checkpoint.getMasterFlushedOffset());
        values.addProperty("confirmPhyOffset", checkpoint.getConfirmPhyOffset());
        values.addProperty("logicsPhysicalOffset", checkpoint.getLogicsPhysicalOffset());
        return values;
    }
}
