package penstock.bench;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * One JSON object a line in, one JSON object a line out.
 *
 * An answer is {"ok": true, ...} or {"ok": false, "error": ..., "trace": ...}. Whatever the libraries print goes to
 * standard error, so that standard output holds answers only.
 */
final class Lines {
    static final Gson GSON = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();

    interface Handler {
        JsonObject answer(JsonObject command) throws Exception;
    }

    private static PrintStream out;

    private Lines() {
    }

    /** Takes standard output away from everybody else. Call first. */
    static void claimOutput() {
        out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
    }

    static void serve(Handler handler) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (!line.isBlank()) {
                run(handler, JsonParser.parseString(line).getAsJsonObject());
            }
        }
    }

    static boolean run(Handler handler, JsonObject command) {
        JsonObject answer;
        boolean ok = true;
        try {
            answer = handler.answer(command);
            answer.addProperty("ok", true);
        } catch (Throwable error) {
            ok = false;
            StringWriter trace = new StringWriter();
            error.printStackTrace(new PrintWriter(trace));
            answer = new JsonObject();
            answer.addProperty("ok", false);
            answer.addProperty("error", String.valueOf(error));
            answer.addProperty("trace", trace.toString());
        }
        send(answer);
        return ok;
    }

    static synchronized void send(JsonObject answer) {
        answer.addProperty("rss_anon", rssAnon());
        out.println(GSON.toJson(answer));
        out.flush();
    }

    /** Anonymous memory of this process in bytes, or -1 where /proc does not say. */
    static long rssAnon() {
        try {
            for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
                if (line.startsWith("RssAnon:")) {
                    return Long.parseLong(line.replaceAll("\\D", "")) * 1024;
                }
            }
        } catch (Exception error) {
            return -1;
        }
        return -1;
    }

    static long number(JsonObject command, String name, long otherwise) {
        return command.has(name) ? command.get(name).getAsLong() : otherwise;
    }

    static String text(JsonObject command, String name, String otherwise) {
        return command.has(name) && !command.get(name).isJsonNull() ? command.get(name).getAsString() : otherwise;
    }

    static boolean flag(JsonObject command, String name) {
        return command.has(name) && command.get(name).getAsBoolean();
    }
}
