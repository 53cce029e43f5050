package penstock.bench;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Opens a store directory as a broker would, without a broker. */
final class Stores {
    private Stores() {
    }

    static MessageStoreConfig config(String directory, JsonObject options) {
        MessageStoreConfig config = new MessageStoreConfig();
        Properties properties = new Properties();
        for (Map.Entry<String, JsonElement> option : options.entrySet()) {
            properties.setProperty(option.getKey(), option.getValue().getAsString());
        }
        MixAll.properties2Object(properties, config);
        config.setStorePathRootDir(directory);
        config.setStorePathCommitLog(directory + "/commitlog");
        // The replication service listens even without replicas: any free port will do.
        config.setHaListenPort(0);
        return config;
    }

    static Set<String> batchQueueTopics(JsonObject command) {
        Set<String> topics = new LinkedHashSet<>();
        if (command.has("batchQueueTopics")) {
            for (JsonElement topic : command.getAsJsonArray("batchQueueTopics")) {
                topics.add(topic.getAsString());
            }
        }
        return topics;
    }

    static JsonObject options(JsonObject command) {
        return command.has("config") ? command.getAsJsonObject("config") : new JsonObject();
    }

    /** A store ready to load: nothing was read or recovered yet. */
    static DefaultMessageStore create(JsonObject command) throws Exception {
        String directory = command.get("dir").getAsString();
        return Api.newStore(config(directory, options(command)), batchQueueTopics(command));
    }

    static void load(DefaultMessageStore store) throws Exception {
        if (!store.load()) {
            throw new IllegalStateException("load() answered false");
        }
        store.start();
    }

    static void awaitDispatch(DefaultMessageStore store) throws Exception {
        awaitDispatch(store, 0);
    }

    /** Waits until queues and index hold the log up to `end` and everything that readers may see (less, while a pool buffers). */
    static void awaitDispatch(DefaultMessageStore store, long end) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(300);
        while (Api.reputFromOffset(store) < Math.max(end, store.getMaxPhyOffset())) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("dispatch stands at " + Api.reputFromOffset(store) + " of " + store.getMaxPhyOffset());
            }
            LockSupport.parkNanos(100_000);
        }
    }

    static JsonArray array(Iterable<String> texts) {
        JsonArray array = new JsonArray();
        texts.forEach(array::add);
        return array;
    }
}
