import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs mqadmin commands in one process: a line of tab-separated words each, a marker behind each answer. */
public class Commands {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = lines.readLine()) != null) {
            MQAdminStartup.main0(line.split("\t"), null);
            System.out.println("=== done");
            System.out.flush();
        }
        System.exit(0);
    }
}
