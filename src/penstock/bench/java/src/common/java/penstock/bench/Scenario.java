package penstock.bench;

import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.rocketmq.store.DefaultMessageStore;

/** What to put, by name and seed. Segments are small, so that a few hundred messages roll every kind of file. */
final class Scenario {
    private static final List<String> BOTH = List.of(
        "plain", "hosts", "batches", "queue-ext", "transactions", "delay", "index-rolled", "transient-pool", "killed");
    private static final List<String> ONLY_V5 = List.of("long-topics", "inner-batches", "prop-crc", "lmq", "killed-everything");

    private static final byte[][] UNITS = {
        "消息正文 héllo 😀 ".getBytes(StandardCharsets.UTF_8), "0123456789abcdef".getBytes(StandardCharsets.UTF_8), {0}, {-1, 0, 1, 127, -128, 10, 13},
    };
    private static final String[] TAGS = {"TagA", "标签", "tag 🚀", "polygenelubricants", "a"};

    final String name;
    private final Random random;
    private final JsonObject filterBitmaps = new JsonObject();

    Scenario(String name, long seed) {
        if (!names().contains(name)) {
            throw new IllegalArgumentException("no scenario " + name + "; there are " + names());
        }
        this.name = name;
        this.random = new Random(seed);
    }

    static List<String> names() {
        List<String> names = new ArrayList<>(BOTH);
        if (Api.V5) {
            names.addAll(ONLY_V5);
        }
        return names;
    }

    boolean killed() {
        return name.startsWith("killed");
    }

    Set<String> batchQueueTopics() {
        return name.equals("inner-batches") || name.equals("killed-everything") ? Set.of("inner", "inner-b") : Set.of();
    }

    JsonObject filterBitmaps() {
        return filterBitmaps;
    }

    JsonObject config() {
        JsonObject config = new JsonObject();
        config.addProperty("mappedFileSizeCommitLog", 65536);
        config.addProperty("mappedFileSizeConsumeQueue", 2000);
        config.addProperty("maxHashSlotNum", 100);
        config.addProperty("maxIndexNum", 400);
        config.addProperty("flushDiskType", killed() ? "SYNC_FLUSH" : "ASYNC_FLUSH");
        switch (name) {
            case "inner-batches":
                config.addProperty("mapperFileSizeBatchConsumeQueue", 46 * 16);
                break;
            case "killed-everything":
                config.addProperty("mapperFileSizeBatchConsumeQueue", 46 * 16);
                config.addProperty("enableLmq", true);
                config.addProperty("enableMultiDispatch", true);
                break;
            case "queue-ext":
                config.addProperty("enableConsumeQueueExt", true);
                config.addProperty("bitMapLengthConsumeQueueExt", 112);
                config.addProperty("mappedFileSizeConsumeQueueExt", 4096);
                break;
            case "prop-crc":
                config.addProperty("enabledAppendPropCRC", true);
                config.addProperty("forceVerifyPropCRC", true);
                break;
            case "lmq":
                config.addProperty("enableLmq", true);
                config.addProperty("enableMultiDispatch", true);
                break;
            case "index-rolled":
                config.addProperty("maxHashSlotNum", 7);
                config.addProperty("maxIndexNum", 60);
                break;
            case "transient-pool":
                config.addProperty("transientStorePoolEnable", true);
                // A buffer for each file and those made ahead: RocketMQ 5.5.0 never shows what lies in a file that found the pool empty.
                config.addProperty("transientStorePoolSize", 12);
                break;
            default:
        }
        return config;
    }

    /** The broker computes filter bitmaps before the queues are written: stand in for it. */
    void beforeLoad(DefaultMessageStore store) {
        if (name.equals("queue-ext")) {
            int[] sizes = {0, 1, 8, 14};
            store.getDispatcherList().addFirst(request -> {
                byte[] bits = new byte[sizes[(int) (request.getConsumeQueueOffset() % sizes.length)]];
                new Random(request.getCommitLogOffset()).nextBytes(bits);
                request.setBitMap(bits);
                filterBitmaps.addProperty(String.valueOf(request.getCommitLogOffset()), Base64.getEncoder().encodeToString(bits));
            });
        }
    }

    void write(Puts puts) throws Exception {
        switch (name) {
            case "hosts":
                hosts(puts);
                break;
            case "batches":
                batches(puts, 40);
                break;
            case "inner-batches":
                innerBatches(puts, 60);
                break;
            case "queue-ext":
                plain(puts, 300, "ext", "other");
                break;
            case "transactions":
                transactions(puts);
                break;
            case "delay":
                plain(puts, 20, "before");
                delay(puts, 60);
                break;
            case "index-rolled":
                keys(puts);
                break;
            case "long-topics":
                longTopics(puts);
                break;
            case "lmq":
                lmq(puts, 150);
                break;
            case "killed-everything":
                plain(puts, 150, "orders", "主题-été");
                batches(puts, 15);
                innerBatches(puts, 25);
                lmq(puts, 40);
                delay(puts, 20);
                transactions(puts);
                hosts(puts);
                break;
            default:
                plain(puts, 400, "orders", "主题-été", "%RETRY%group-a", "x");
        }
    }

    private void plain(Puts puts, int count, String... topics) {
        for (int index = 0; index < count; index++) {
            puts.flag = random.nextInt(5) == 0 ? random.nextInt() : 0;
            puts.sysFlag = random.nextInt(6) == 0 ? 0x1 | random.nextInt(4) << 8 : 0;
            puts.reconsumeTimes = random.nextInt(8) == 0 ? random.nextInt(16) : 0;
            int length = index % 37 == 0 ? 0 : random.nextInt(index % 11 == 0 ? 4000 : 700);
            puts.put(topics[random.nextInt(topics.length)], random.nextInt(3), unit(), length, properties(index));
        }
        puts.flag = 0;
        puts.sysFlag = 0;
        puts.reconsumeTimes = 0;
    }

    private void hosts(Puts puts) {
        for (int index = 0; index < 80; index++) {
            puts.bornHost = index % 2 == 0 ? Puts.BORN_V4 : Puts.BORN_V6;
            puts.storeHost = index / 2 % 2 == 0 ? Puts.STORE_V4 : Puts.STORE_V6;
            if (index % 5 == 4) {
                puts.putBatch("hosts", index % 2, parts(3));
            } else {
                puts.put("hosts", index % 2, unit(), random.nextInt(900), properties(index));
            }
        }
        puts.bornHost = Puts.BORN_V4;
        puts.storeHost = Puts.STORE_V4;
    }

    private void batches(Puts puts, int count) {
        for (int index = 0; index < count; index++) {
            puts.putBatch(index % 3 == 0 ? "batch-b" : "batch-a", index % 2, parts(1 + random.nextInt(20)));
            if (index % 4 == 0) {
                puts.put("batch-a", 0, unit(), random.nextInt(300), properties(index));
            }
        }
    }

    private void innerBatches(Puts puts, int count) {
        for (int index = 0; index < count; index++) {
            Map<String, String> properties = properties(index);
            properties.put("UNIQ_KEY", unique());
            if (index % 5 == 0) {
                puts.put("inner", index % 2, unit(), 100, properties);
            } else {
                puts.putInnerBatch(index % 7 == 0 ? "inner-b" : "inner", index % 2, parts(1 + random.nextInt(9)), properties);
            }
        }
    }

    private void transactions(Puts puts) {
        List<Long> halves = new ArrayList<>();
        for (int index = 0; index < 60; index++) {
            int type = index % 4;
            puts.sysFlag = type << 2;
            puts.preparedTransactionOffset = type >= 2 && !halves.isEmpty() ? halves.get(random.nextInt(halves.size())) : 0;
            Map<String, String> properties = properties(index);
            properties.put("TRAN_MSG", "true");
            properties.put("PGROUP", "producers");
            JsonObject answer = puts.put("tx", index % 3, unit(), random.nextInt(800), properties);
            if (type == 1) {
                halves.add(answer.get("physicalOffset").getAsLong());
            }
        }
        puts.sysFlag = 0;
        puts.preparedTransactionOffset = 0;
    }

    /** As the broker (5.x) or the store itself (4.9) rewrites a message with a delay level. Nothing falls due while we look. */
    private void delay(Puts puts, int count) {
        for (int index = 0; index < count; index++) {
            int level = 14 + index % 5;
            Map<String, String> properties = properties(index);
            properties.put("DELAY", String.valueOf(level));
            if (Api.V5) {
                properties.put("REAL_TOPIC", "delayed");
                properties.put("REAL_QID", "1");
                puts.put("SCHEDULE_TOPIC_XXXX", level - 1, unit(), random.nextInt(500), properties);
            } else {
                puts.put("delayed", 1, unit(), random.nextInt(500), properties);
            }
        }
    }

    private void keys(Puts puts) throws Exception {
        String[] words = {"Aa", "BB", "order-1", "order-2", "键", "x", "polygenelubricants"};
        for (int index = 0; index < 120; index++) {
            Map<String, String> properties = new LinkedHashMap<>();
            String separator = index % 3 == 0 ? "  " : " ";
            properties.put("KEYS", words[random.nextInt(words.length)] + separator + words[random.nextInt(words.length)] + " k" + index);
            properties.put("UNIQ_KEY", unique());
            puts.put("indexed", index % 2, unit(), random.nextInt(200), properties);
            if (index % 10 == 9) {
                // Index files are named by the millisecond: two in one would be one file, which loses entries.
                puts.awaitDispatch();
            }
        }
    }

    private void longTopics(Puts puts) {
        String[] topics = {"t".repeat(127), "%RETRY%" + "g".repeat(120), "%RETRY%" + "g".repeat(121), "%RETRY%" + "h".repeat(240)};
        for (int index = 0; index < 100; index++) {
            String topic = topics[index % topics.length];
            if (index % 10 == 9) {
                puts.putBatch(topic, 0, parts(4));
            } else {
                puts.put(topic, index % 2, unit(), random.nextInt(600), properties(index));
            }
        }
    }

    private void lmq(Puts puts, int count) {
        String[] queues = {"%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%a,%LMQ%b,%LMQ%c-0"};
        for (int index = 0; index < count; index++) {
            Map<String, String> properties = properties(index);
            if (index % 3 != 0) {
                properties.put("INNER_MULTI_DISPATCH", queues[random.nextInt(queues.length)]);
            }
            puts.put("parent", index % 2, unit(), random.nextInt(700), properties);
        }
    }

    private List<Puts.Part> parts(int count) {
        List<Puts.Part> parts = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            parts.add(new Puts.Part(unit(), random.nextInt(250), random.nextInt(3), properties(index)));
        }
        return parts;
    }

    private byte[] unit() {
        return UNITS[random.nextInt(UNITS.length)];
    }

    private String unique() {
        return String.format("%016X%016X", random.nextLong(), random.nextLong());
    }

    private Map<String, String> properties(int index) {
        Map<String, String> properties = new LinkedHashMap<>();
        if (random.nextInt(3) != 0) {
            properties.put("TAGS", TAGS[random.nextInt(TAGS.length)]);
        }
        if (random.nextInt(3) != 0) {
            properties.put("KEYS", "order-" + random.nextInt(40) + (index % 4 == 0 ? " user" + random.nextInt(5) : ""));
        }
        if (random.nextInt(4) != 0) {
            properties.put("UNIQ_KEY", unique());
        }
        if (random.nextInt(5) == 0) {
            properties.put("naïve-свойство", "значение " + random.nextInt(100));
        }
        return properties;
    }
}
