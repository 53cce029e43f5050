package penstock.bench;

import com.google.gson.JsonObject;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * RocketMQ's Java client behind JSON lines: producers and consumers that a test names, starts, uses and stops.
 *
 * The same program runs against any broker; what it answers is what the client saw.
 */
public final class ClientDriver {
    private static final Map<String, Lines.Handler> COMMANDS = new LinkedHashMap<>();

    private ClientDriver() {
    }

    public static void main(String[] arguments) throws Exception {
        Lines.claimOutput();
        new ClientProducers(COMMANDS);
        new ClientConsumers(COMMANDS);
        new ClientPulls(COMMANDS);
        new ClientLoad(COMMANDS);
        new ClientTimers(COMMANDS);
        new ClientPopLoad(COMMANDS);
        new ClientAdmin(COMMANDS);
        Lines.serve(ClientDriver::answer);
        System.exit(0);
    }

    private static JsonObject answer(JsonObject command) throws Exception {
        Lines.Handler handler = COMMANDS.get(command.get("do").getAsString());
        if (handler == null) {
            throw new IllegalArgumentException("no such command: " + command);
        }
        return handler.answer(command);
    }

    /** The thing a command names, which must have been started. */
    static <T> T named(Map<String, T> things, JsonObject command) {
        String name = command.get("name").getAsString();
        T thing = things.get(name);
        if (thing == null) {
            throw new IllegalArgumentException("nothing is called " + name);
        }
        return thing;
    }
}
