package penstock.bench;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * Writes store directories that use every feature, and says what a directory holds.
 *
 * Commands: {"do": "write", "dir", "scenario", "seed", "manifest"?} and {"do": "open", "dir", "config", "batchQueueTopics"?,
 * "keys"?, "lookups"?, "append"?, "halt"?}. By hand: {@code write DIR SCENARIO SEED} or {@code open DIR [CONFIG]}.
 */
public final class StoreInterop {
    private StoreInterop() {
    }

    public static void main(String[] arguments) throws Exception {
        Lines.claimOutput();
        boolean ok = true;
        if (arguments.length == 0) {
            Lines.serve(StoreInterop::answer);
        } else {
            JsonObject command = new JsonObject();
            command.addProperty("do", arguments[0]);
            command.addProperty("dir", arguments[1]);
            if (arguments[0].equals("write")) {
                command.addProperty("scenario", arguments[2]);
                command.addProperty("seed", Long.parseLong(arguments[3]));
            } else if (arguments.length > 2) {
                command.add("config", Lines.GSON.fromJson(arguments[2], JsonObject.class));
            }
            ok = Lines.run(StoreInterop::answer, command);
        }
        // Threads of the stores that were opened may still run.
        Runtime.getRuntime().halt(ok ? 0 : 1);
    }

    static JsonObject answer(JsonObject command) throws Exception {
        switch (command.get("do").getAsString()) {
            case "write":
                return write(command);
            case "open":
                return open(command);
            case "scenarios":
                JsonObject answer = new JsonObject();
                answer.addProperty("rocketmq", Api.VERSION);
                answer.add("scenarios", Stores.array(Scenario.names()));
                return answer;
            default:
                throw new IllegalArgumentException("unknown command " + command.get("do"));
        }
    }

    private static JsonObject write(JsonObject command) throws Exception {
        Scenario scenario = new Scenario(command.get("scenario").getAsString(), command.get("seed").getAsLong());
        command.add("config", scenario.config());
        command.add("batchQueueTopics", Stores.array(scenario.batchQueueTopics()));
        DefaultMessageStore store = Stores.create(command);
        scenario.beforeLoad(store);
        Stores.load(store);
        Puts puts = new Puts(store);
        scenario.write(puts);
        JsonObject manifest = new JsonObject();
        manifest.addProperty("rocketmq", Api.VERSION);
        manifest.addProperty("scenario", scenario.name);
        manifest.addProperty("seed", command.get("seed").getAsLong());
        manifest.addProperty("closed", scenario.killed() ? "killed" : "clean");
        manifest.add("config", scenario.config());
        manifest.add("batchQueueTopics", command.get("batchQueueTopics"));
        if (scenario.killed()) {
            // The log goes on growing behind the manifest's back: what it holds beyond `puts` was never acknowledged to a reader of it.
            Thread busy = puts.keepWriting();
            manifest.add("puts", puts.acknowledged());
            save(command, manifest);
            manifest.addProperty("ok", true);
            Lines.send(manifest);
            busy.join(20);
            Runtime.getRuntime().halt(137);
        }
        Stores.awaitDispatch(store, puts.end());
        manifest.add("puts", puts.acknowledged());
        manifest.add("filterBitmaps", scenario.filterBitmaps());
        manifest.add("atClose", new Answers(store).all(new JsonObject()));
        close(store);
        save(command, manifest);
        return manifest;
    }

    private static JsonObject open(JsonObject command) throws Exception {
        String directory = command.get("dir").getAsString();
        if (!new File(directory).isDirectory()) {
            throw new IllegalArgumentException("no directory " + directory);
        }
        DefaultMessageStore store = Stores.create(command);
        Stores.load(store);
        Stores.awaitDispatch(store);
        JsonObject answer = new JsonObject();
        answer.addProperty("rocketmq", Api.VERSION);
        answer.add("holds", new Answers(store).all(command));
        int append = (int) Lines.number(command, "append", 0);
        if (append > 0) {
            answer.add("appended", append(store, append, answer.getAsJsonObject("holds").getAsJsonArray("queues")));
        }
        if (Lines.flag(command, "halt")) {
            answer.addProperty("ok", true);
            Lines.send(answer);
            Runtime.getRuntime().halt(137);
        }
        close(store);
        return answer;
    }

    /** Half of the messages go to a topic of their own, half behind what the first simple queue of the store holds. */
    private static JsonArray append(DefaultMessageStore store, int count, JsonArray queues) throws Exception {
        String topic = "appended-by-java";
        int queueId = 0;
        for (int index = 0; index < queues.size(); index++) {
            JsonObject queue = queues.get(index).getAsJsonObject();
            String name = queue.get("topic").getAsString();
            if (queue.get("type").getAsString().equals("SimpleCQ") && name.matches("[A-Za-z][A-Za-z0-9_-]*") && !name.startsWith("SCHEDULE")) {
                topic = name;
                queueId = queue.get("queueId").getAsInt();
                break;
            }
        }
        Puts puts = new Puts(store);
        for (int index = 0; index < count; index++) {
            byte[] body = ("appended " + index + " by RocketMQ " + Api.VERSION).getBytes(StandardCharsets.UTF_8);
            Map<String, String> properties = Map.of("TAGS", "appended", "KEYS", "java-append-" + index, "UNIQ_KEY", "JAVA" + index);
            boolean own = index % 2 == 0;
            puts.put(own ? "appended-by-java" : topic, own ? 0 : queueId, body, body.length, properties);
        }
        Stores.awaitDispatch(store, puts.end());
        return puts.acknowledged();
    }

    private static void close(DefaultMessageStore store) {
        store.shutdown();
    }

    private static void save(JsonObject command, JsonObject manifest) throws Exception {
        if (command.has("manifest")) {
            Files.write(Path.of(command.get("manifest").getAsString()), List.of(Lines.GSON.toJson(manifest)));
        }
    }
}
