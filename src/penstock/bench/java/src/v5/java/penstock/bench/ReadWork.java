package penstock.bench;

import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.util.Random;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;

/** Reads of topic "bench": sequential gets, and queries by key. */
final class ReadWork {
    private final DefaultMessageStore store;
    private final JsonObject command;
    private long sum;

    ReadWork(DefaultMessageStore store, JsonObject command) {
        this.store = store;
        this.command = command;
    }

    /** Each queue from its beginning to its end; with `decode` every record becomes a message whose fields are read. */
    JsonObject get() throws Exception {
        int queues = (int) Lines.number(command, "queues", 4);
        int count = (int) Lines.number(command, "count", 32);
        boolean decode = Lines.flag(command, "decode");
        long messages = 0;
        long calls = 0;
        long bytes = 0;
        long start = System.nanoTime();
        for (int queue = 0; queue < queues; queue++) {
            long offset = store.getMinOffsetInQueue(PutWork.TOPIC, queue);
            while (true) {
                GetMessageResult result = store.getMessage("bench", PutWork.TOPIC, queue, offset, count, null);
                if (result.getStatus() != GetMessageStatus.FOUND) {
                    result.release();
                    break;
                }
                calls++;
                for (ByteBuffer buffer : result.getMessageBufferList()) {
                    messages++;
                    bytes += buffer.remaining();
                    if (decode) {
                        read(MessageDecoder.decode(buffer));
                    }
                }
                offset = result.getNextBeginOffset();
                result.release();
            }
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        JsonObject answer = new JsonObject();
        answer.addProperty("count", messages);
        answer.addProperty("calls", calls);
        answer.addProperty("bytes", bytes);
        answer.addProperty("seconds", seconds);
        answer.addProperty("rate", messages / seconds);
        answer.addProperty("sum", sum);
        return answer;
    }

    private void read(MessageExt message) {
        sum += message.getTopic().length() + message.getBody().length + message.getTags().length() + message.getKeys().length()
            + message.getQueueOffset() + message.getStoreTimestamp() + message.getProperties().size();
    }

    /** Queries with keys "k" + r, r drawn from [0, distinct). */
    JsonObject query() {
        int queries = (int) Lines.number(command, "queries", 1000);
        int distinct = (int) Lines.number(command, "distinct", 1);
        int count = (int) Lines.number(command, "count", 32);
        Random random = new Random(Lines.number(command, "seed", 1));
        long hits = 0;
        long start = System.nanoTime();
        for (int query = 0; query < queries; query++) {
            QueryMessageResult result = store.queryMessage(PutWork.TOPIC, "k" + random.nextInt(distinct), count, 0, Long.MAX_VALUE);
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                hits++;
                sum += buffer.remaining();
            }
            result.release();
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        JsonObject answer = new JsonObject();
        answer.addProperty("count", queries);
        answer.addProperty("hits", hits);
        answer.addProperty("seconds", seconds);
        answer.addProperty("rate", queries / seconds);
        answer.addProperty("sum", sum);
        return answer;
    }
}
