package penstock.bench;

import com.google.gson.JsonObject;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * RocketMQ's message store, doing the works of `penstock bench store` on command.
 *
 * <pre>
 * open    dir, config, wait?        load() and start(), timed; with wait until queues and index caught up
 * put     n, body, writers, batch, in_flight, queues, distinct, first   see PutWork
 * get     queues, decode, count     see ReadWork
 * query   queries, distinct, first, count
 * close   shutdown(), timed
 * rebuild dir, config               drops queues, index and checkpoint, then opens and waits, timed
 * kill    halts the JVM as a crash would; there is an answer, then the end
 * memory  nothing but the RssAnon that comes with every answer
 * </pre>
 */
public final class StorePeer {
    private DefaultMessageStore store;

    private StorePeer() {
    }

    public static void main(String[] arguments) throws Exception {
        Lines.claimOutput();
        Lines.serve(new StorePeer()::answer);
        Runtime.getRuntime().halt(0);
    }

    private JsonObject answer(JsonObject command) throws Exception {
        switch (command.get("do").getAsString()) {
            case "open":
                return open(command);
            case "put":
                return new PutWork(opened(), command).run();
            case "get":
                return new ReadWork(opened(), command).get();
            case "query":
                return new ReadWork(opened(), command).query();
            case "close":
                return close();
            case "rebuild":
                return rebuild(command);
            case "kill":
                JsonObject last = new JsonObject();
                last.addProperty("ok", true);
                Lines.send(last);
                Runtime.getRuntime().halt(137);
                return last;
            case "memory":
                return new JsonObject();
            default:
                throw new IllegalArgumentException("unknown command " + command.get("do"));
        }
    }

    private DefaultMessageStore opened() {
        if (store == null) {
            throw new IllegalStateException("no store is open");
        }
        return store;
    }

    private JsonObject open(JsonObject command) throws Exception {
        if (store != null) {
            throw new IllegalStateException("a store is open already");
        }
        long start = System.nanoTime();
        DefaultMessageStore created = Stores.create(command);
        Stores.load(created);
        long opened = System.nanoTime();
        if (Lines.flag(command, "wait")) {
            Stores.awaitDispatch(created);
        }
        long ready = System.nanoTime();
        store = created;
        JsonObject answer = new Answers(created).offsets();
        answer.addProperty("seconds", (ready - start) / 1e9);
        answer.addProperty("opened_seconds", (opened - start) / 1e9);
        return answer;
    }

    private JsonObject close() {
        long start = System.nanoTime();
        opened().shutdown();
        store = null;
        JsonObject answer = new JsonObject();
        answer.addProperty("seconds", (System.nanoTime() - start) / 1e9);
        return answer;
    }

    private JsonObject rebuild(JsonObject command) throws Exception {
        Path directory = Path.of(command.get("dir").getAsString());
        for (String name : List.of("consumequeue", "index", "checkpoint")) {
            delete(directory.resolve(name));
        }
        command.addProperty("wait", true);
        return open(command);
    }

    private static void delete(Path path) throws Exception {
        if (!Files.exists(path)) {
            return;
        }
        List<Path> found;
        try (Stream<Path> below = Files.walk(path)) {
            found = below.sorted(Comparator.reverseOrder()).collect(Collectors.toList());
        }
        for (Path each : found) {
            Files.delete(each);
        }
    }
}
