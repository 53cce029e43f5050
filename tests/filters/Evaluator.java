import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * RocketMQ's own filters, asked line by line; every argument is base64 of UTF-8.
 * E expression: "ok" or "error". P property string: what the last expression is of it, "true", "false", "null" or
 * "error". B text: the bit positions of a bloom filter for 32 consumers and 20 % of errors.
 */
public class Evaluator {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        Expression expression = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String text = new String(Base64.getDecoder().decode(line.substring(2)), StandardCharsets.UTF_8);
            switch (line.charAt(0)) {
                case 'E':
                    try {
                        expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
                        out.println("ok");
                    } catch (Throwable refused) {
                        expression = null;
                        out.println("error");
                    }
                    break;
                case 'P':
                    try {
                        MessageEvaluationContext context =
                            new MessageEvaluationContext(MessageDecoder.string2messageProperties(text));
                        out.println(String.valueOf(expression.evaluate(context)));
                    } catch (Throwable failed) {
                        out.println("error");
                    }
                    break;
                default:
                    out.println(Arrays.toString(BloomFilter.createByFn(20, 32).calcBitPositions(text)));
            }
        }
        out.flush();
    }
}
