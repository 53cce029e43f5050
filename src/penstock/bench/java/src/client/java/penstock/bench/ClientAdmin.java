package penstock.bench;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** RocketMQ's own tools: mqadmin as it is, with what it prints, and the few calls that tests need by themselves. */
final class ClientAdmin {
    ClientAdmin(Map<String, Lines.Handler> commands) {
        commands.put("mqadmin", ClientAdmin::mqadmin);
        commands.put("create-topic", ClientAdmin::createTopic);
    }

    private static JsonObject mqadmin(JsonObject command) {
        String[] arguments = command.getAsJsonArray("arguments").asList().stream()
            .map(JsonElement::getAsString).toArray(String[]::new);
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream before = System.out;
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(arguments, null);
        } finally {
            System.setOut(before);
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("stdout", printed.toString(StandardCharsets.UTF_8));
        return answer;
    }

    private static JsonObject createTopic(JsonObject command) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(command.get("namesrv").getAsString());
        admin.setInstanceName("admin-" + System.nanoTime());
        admin.start();
        try {
            int queues = (int) Lines.number(command, "queues", 4);
            TopicConfig topic = new TopicConfig(command.get("topic").getAsString());
            topic.setReadQueueNums(queues);
            topic.setWriteQueueNums(queues);
            admin.createAndUpdateTopicConfig(command.get("broker").getAsString(), topic);
        } finally {
            admin.shutdown();
        }
        return new JsonObject();
    }
}
