package penstock.bench;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** RocketMQ's own tools: mqadmin as it is, with what it prints, and the few calls that tests need by themselves. */
final class ClientAdmin {
    private static final long PATIENCE_MS = 60_000;

    ClientAdmin(Map<String, Lines.Handler> commands) {
        commands.put("mqadmin", ClientAdmin::mqadmin);
        commands.put("create-topic", ClientAdmin::createTopic);
        commands.put("create-topics", ClientAdmin::createTopics);
    }

    private static JsonObject mqadmin(JsonObject command) {
        String[] arguments = command.getAsJsonArray("arguments").asList().stream()
            .map(JsonElement::getAsString).toArray(String[]::new);
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        PrintStream before = System.out;
        PrintStream errorsBefore = System.err;
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(arguments, ClientIdentity.hook(command));
        } finally {
            System.setOut(before);
            System.setErr(errorsBefore);
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("stdout", printed.toString(StandardCharsets.UTF_8));
        answer.addProperty("stderr", errors.toString(StandardCharsets.UTF_8));
        return answer;
    }

    private static JsonObject createTopic(JsonObject command) throws Exception {
        return create(command, List.of(command.get("topic").getAsString()), false);
    }

    /** Many topics, each with a message in every queue, so that every queue exists. */
    private static JsonObject createTopics(JsonObject command) throws Exception {
        List<String> topics = new ArrayList<>();
        for (int i = 0; i < command.get("count").getAsInt(); i++) {
            topics.add(command.get("prefix").getAsString() + i);
        }
        return create(command, topics, true);
    }

    private static JsonObject create(JsonObject command, List<String> topics, boolean fill) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(ClientIdentity.hook(command), PATIENCE_MS);
        admin.setNamesrvAddr(command.get("namesrv").getAsString());
        admin.setInstanceName("admin-" + System.nanoTime());
        admin.start();
        DefaultMQProducer producer = new DefaultMQProducer("create", ClientIdentity.hook(command));
        producer.setNamesrvAddr(command.get("namesrv").getAsString());
        producer.setInstanceName("create-" + System.nanoTime());
        producer.start();
        try {
            int queues = (int) Lines.number(command, "queues", 4);
            for (String name : topics) {
                TopicConfig topic = new TopicConfig(name);
                topic.setReadQueueNums(queues);
                topic.setWriteQueueNums(queues);
                admin.createAndUpdateTopicConfig(command.get("broker").getAsString(), topic);
                for (int queue = 0; fill && queue < queues; queue++) {
                    producer.send(new Message(name, new byte[1]), new MessageQueue(name, "broker-a", queue));
                }
            }
        } finally {
            producer.shutdown();
            admin.shutdown();
        }
        return new JsonObject();
    }
}
