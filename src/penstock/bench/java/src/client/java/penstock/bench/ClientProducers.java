package penstock.bench;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Producers by name: every way of sending that the client has. */
final class ClientProducers {
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    /** How often the broker asked about each message. */
    private final Map<String, AtomicInteger> checks = new ConcurrentHashMap<>();

    ClientProducers(Map<String, Lines.Handler> commands) {
        commands.put("producer", this::start);
        commands.put("stop-producer", this::stop);
        commands.put("send", this::send);
        commands.put("send-batch", this::sendBatch);
        commands.put("transaction", this::transaction);
        commands.put("checks", this::checks);
        commands.put("request", this::request);
        commands.put("find", this::find);
        commands.put("recall", this::recall);
    }

    private JsonObject start(JsonObject command) throws Exception {
        String group = command.get("group").getAsString();
        boolean traced = Lines.flag(command, "trace");
        DefaultMQProducer producer;
        if (Lines.flag(command, "transactional")) {
            TransactionMQProducer transactional = new TransactionMQProducer(
                group, ClientIdentity.hook(command));
            transactional.setTransactionListener(new Verdicts());
            producer = transactional;
        } else {
            producer = new DefaultMQProducer(group, ClientIdentity.hook(command), traced, null);
        }
        producer.setNamesrvAddr(command.get("namesrv").getAsString());
        producer.setInstanceName(command.get("name").getAsString());
        producer.setSendMsgTimeout((int) Lines.number(command, "timeout_ms", 10_000));
        producer.setRetryTimesWhenSendFailed((int) Lines.number(command, "retries", 2));
        if (command.has("compress_over")) {
            producer.setCompressMsgBodyOverHowmuch(command.get("compress_over").getAsInt());
        }
        producer.start();
        producers.put(command.get("name").getAsString(), producer);
        return new JsonObject();
    }

    private JsonObject stop(JsonObject command) {
        ClientDriver.named(producers, command).shutdown();
        producers.remove(command.get("name").getAsString());
        return new JsonObject();
    }

    private JsonObject send(JsonObject command) throws Exception {
        DefaultMQProducer producer = ClientDriver.named(producers, command);
        JsonArray results = new JsonArray();
        String mode = Lines.text(command, "mode", "sync");
        List<JsonElement> messages = command.getAsJsonArray("messages").asList();
        JsonObject[] answers = new JsonObject[messages.size()];
        CountDownLatch open = new CountDownLatch(messages.size());
        for (int i = 0; i < messages.size(); i++) {
            JsonObject given = messages.get(i).getAsJsonObject();
            Message message = ClientMessages.message(given);
            try {
                answers[i] = sendOne(producer, mode, given, message, answers, i, open);
            } catch (MQBrokerException | MQClientException error) {
                answers[i] = failure(error);
                open.countDown();
            }
        }
        if (!open.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException(open.getCount() + " asynchronous sends got no answer");
        }
        for (JsonObject answer : answers) {
            results.add(answer);
        }
        JsonObject answer = new JsonObject();
        answer.add("results", results);
        return answer;
    }

    private static JsonObject sendOne(DefaultMQProducer producer, String mode, JsonObject given, Message message,
        JsonObject[] answers, int place, CountDownLatch open) throws Exception {
        if (mode.equals("async")) {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    answers[place] = ClientMessages.result(sent);
                    open.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    answers[place] = failure(error);
                    open.countDown();
                }
            });
            return answers[place];
        }
        JsonObject answer;
        if (mode.equals("oneway")) {
            producer.sendOneway(message);
            answer = new JsonObject();
        } else if (given.has("order")) {
            int key = given.get("order").getAsInt();
            answer = ClientMessages.result(
                producer.send(message, (queues, m, argument) -> queues.get(key % queues.size()), key));
        } else {
            answer = ClientMessages.result(producer.send(message));
        }
        open.countDown();
        return answer;
    }

    static JsonObject failure(Throwable error) {
        JsonObject answer = new JsonObject();
        answer.addProperty("error", error.getClass().getSimpleName());
        Throwable cause = error;
        while (!(cause instanceof MQBrokerException) && cause.getCause() != null) {
            cause = cause.getCause();
        }
        int code = -1;
        if (cause instanceof MQBrokerException) {
            code = ((MQBrokerException) cause).getResponseCode();
        } else if (error instanceof MQClientException) {
            code = ((MQClientException) error).getResponseCode();
        }
        answer.addProperty("code", code);
        answer.addProperty("text", String.valueOf(error.getMessage()));
        return answer;
    }

    private JsonObject sendBatch(JsonObject command) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (JsonElement given : command.getAsJsonArray("messages")) {
            messages.add(ClientMessages.message(given.getAsJsonObject()));
        }
        return ClientMessages.result(ClientDriver.named(producers, command).send(messages));
    }

    /** The body says what the local transaction and each check answer: "commit", "rollback", "unknown-commit"… */
    private final class Verdicts implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            String word = message.getUserProperty("verdict").split("-")[0];
            return state(word);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checks.computeIfAbsent(new String(message.getBody()), body -> new AtomicInteger()).incrementAndGet();
            String[] words = message.getUserProperty("verdict").split("-");
            return state(words[words.length - 1]);
        }

        private LocalTransactionState state(String word) {
            switch (word) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }
    }

    private JsonObject transaction(JsonObject command) throws Exception {
        TransactionMQProducer producer = (TransactionMQProducer) ClientDriver.named(producers, command);
        Message message = ClientMessages.message(command.getAsJsonObject("message"));
        return ClientMessages.result(producer.sendMessageInTransaction(message, null));
    }

    private JsonObject checks(JsonObject command) {
        JsonObject answer = new JsonObject();
        checks.forEach((body, times) -> answer.addProperty("of:" + body, times.get()));
        return answer;
    }

    private JsonObject request(JsonObject command) throws Exception {
        Message message = ClientMessages.message(command.getAsJsonObject("message"));
        try {
            Message reply = ClientDriver.named(producers, command)
                .request(message, Lines.number(command, "timeout_ms", 10_000));
            JsonObject answer = new JsonObject();
            answer.addProperty("reply", new String(reply.getBody()));
            return answer;
        } catch (Exception error) {
            return failure(error);
        }
    }

    private JsonObject recall(JsonObject command) {
        try {
            JsonObject answer = new JsonObject();
            answer.addProperty("message_id", ClientTimers.recall(ClientDriver.named(producers, command),
                command.get("topic").getAsString(), command.get("handle").getAsString()));
            return answer;
        } catch (Exception error) {
            return failure(error);
        }
    }

    private JsonObject find(JsonObject command) throws Exception {
        DefaultMQProducer producer = ClientDriver.named(producers, command);
        String topic = command.get("topic").getAsString();
        JsonObject answer = new JsonObject();
        try {
            if (command.has("key")) {
                long end = Lines.number(command, "end", System.currentTimeMillis() + 60_000);
                answer.add("messages", ClientMessages.received(
                    producer.queryMessage(topic, command.get("key").getAsString(), 32, 0, end).getMessageList()));
            } else {
                answer.add("messages", ClientMessages.received(
                    List.of(producer.viewMessage(topic, command.get("id").getAsString()))));
            }
            return answer;
        } catch (MQBrokerException | MQClientException error) {
            return failure(error);
        }
    }
}
