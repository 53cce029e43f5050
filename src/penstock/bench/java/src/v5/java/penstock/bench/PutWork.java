package penstock.bench;

import com.google.gson.JsonObject;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageBatch;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;

/**
 * Puts n messages and waits until the last of them is readable in its queue and findable by its key.
 *
 * Message i has body bytes of the asked size, tag "tag" + i % 8, key "k" + i % distinct and a unique key, and goes to queue
 * i % queues of topic "bench" (a client batch goes to one queue whole). Everything about a message is made inside the timed loop.
 */
final class PutWork {
    static final String TOPIC = "bench";
    private static final SocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private final DefaultMessageStore store;
    private final int count;
    private final int first;
    private final int writers;
    private final int batch;
    private final int inFlight;
    private final int queues;
    private final int distinct;
    private final byte[] body;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    PutWork(DefaultMessageStore store, JsonObject command) {
        this.store = store;
        this.count = (int) Lines.number(command, "n", 1000);
        this.first = (int) Lines.number(command, "first", 0);
        this.writers = (int) Lines.number(command, "writers", 1);
        this.batch = (int) Lines.number(command, "batch", 1);
        this.inFlight = (int) Lines.number(command, "in_flight", 1);
        this.queues = (int) Lines.number(command, "queues", 4);
        this.distinct = (int) Lines.number(command, "distinct", Math.max(1, count / 32));
        this.body = new byte[(int) Lines.number(command, "body", 128)];
        for (int index = 0; index < body.length; index++) {
            body[index] = (byte) (index * 31);
        }
    }

    JsonObject run() throws Exception {
        long before = readable();
        String[] last = new String[writers];
        List<Thread> threads = new ArrayList<>();
        long start = System.nanoTime();
        if (writers == 1) {
            last[0] = write(0);
        } else {
            for (int writer = 0; writer < writers; writer++) {
                int number = writer;
                Thread thread = new Thread(() -> {
                    try {
                        last[number] = write(number);
                    } catch (Throwable error) {
                        failure.compareAndSet(null, error);
                    }
                });
                threads.add(thread);
                thread.start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
        }
        long acknowledged = System.nanoTime();
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        awaitVisible(before + count, last);
        long end = System.nanoTime();
        JsonObject answer = new JsonObject();
        answer.addProperty("count", count);
        answer.addProperty("seconds", (end - start) / 1e9);
        answer.addProperty("acknowledged_seconds", (acknowledged - start) / 1e9);
        answer.addProperty("rate", count / ((end - start) / 1e9));
        answer.addProperty("max_physical_offset", store.getMaxPhyOffset());
        return answer;
    }

    /** The share of one writer. Answers with the unique key of its last message. */
    private String write(int writer) throws Exception {
        if (batch > 1) {
            return writeBatches(writer);
        }
        return inFlight > 1 ? writeAsync(writer) : writeSingles(writer);
    }

    private String writeSingles(int writer) {
        String unique = null;
        for (int index = writer; index < count; index += writers) {
            MessageExtBrokerInner message = message(first + index);
            check(store.putMessage(message));
            unique = MessageClientIDSetter.getUniqID(message);
        }
        return unique;
    }

    private String writeAsync(int writer) throws Exception {
        Semaphore free = new Semaphore(inFlight);
        String unique = null;
        for (int index = writer; index < count; index += writers) {
            free.acquire();
            MessageExtBrokerInner message = message(first + index);
            unique = MessageClientIDSetter.getUniqID(message);
            store.asyncPutMessage(message).whenComplete((result, error) -> {
                if (error != null || !result.isOk()) {
                    failure.compareAndSet(null, error != null ? error : new IllegalStateException(String.valueOf(result)));
                }
                free.release();
            });
        }
        free.acquire(inFlight);
        return unique;
    }

    private String writeBatches(int writer) {
        String unique = null;
        int batches = (count + batch - 1) / batch;
        for (int number = writer; number < batches; number += writers) {
            int from = number * batch;
            int to = Math.min(count, from + batch);
            List<Message> messages = new ArrayList<>(to - from);
            for (int index = from; index < to; index++) {
                Message message = new Message(TOPIC, "tag" + (first + index) % 8, "k" + (first + index) % distinct, body);
                MessageClientIDSetter.setUniqID(message);
                messages.add(message);
                unique = MessageClientIDSetter.getUniqID(message);
            }
            MessageExtBatch whole = new MessageExtBatch();
            whole.setTopic(TOPIC);
            whole.setQueueId(number % queues);
            whole.setBornTimestamp(System.currentTimeMillis());
            whole.setBornHost(HOST);
            whole.setStoreHost(HOST);
            whole.setBody(MessageBatch.generateFromList(messages).encode());
            check(store.putMessages(whole));
        }
        return unique;
    }

    private MessageExtBrokerInner message(int index) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(TOPIC);
        message.setBody(body);
        message.setTags("tag" + index % 8);
        message.setKeys("k" + index % distinct);
        MessageClientIDSetter.setUniqID(message);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        message.setQueueId(index % queues);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
        return message;
    }

    private static void check(PutMessageResult result) {
        if (!result.isOk()) {
            throw new IllegalStateException("put answered " + result);
        }
    }

    private long readable() throws Exception {
        long total = 0;
        for (int queue = 0; queue < queues; queue++) {
            total += Math.max(0, store.getMaxOffsetInQueue(TOPIC, queue, true));
        }
        return total;
    }

    private void awaitVisible(long expected, String[] uniqueKeys) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(300);
        while (readable() < expected) {
            pause(deadline);
        }
        for (String unique : uniqueKeys) {
            while (unique != null && !findable(unique)) {
                pause(deadline);
            }
        }
    }

    private boolean findable(String key) {
        QueryMessageResult result = store.queryMessage(TOPIC, key, 1, 0, Long.MAX_VALUE);
        if (result == null) {
            return false;
        }
        try {
            return !result.getMessageBufferList().isEmpty();
        } finally {
            result.release();
        }
    }

    private static void pause(long deadline) {
        if (System.nanoTime() > deadline) {
            throw new IllegalStateException("the last message did not become visible");
        }
        LockSupport.parkNanos(50_000);
    }
}
