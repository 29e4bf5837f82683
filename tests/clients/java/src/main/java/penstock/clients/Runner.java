package penstock.clients;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;

/**
 * Performs the operations of the scenario catalog with the Java client.
 *
 * <p>One JSON object per line on standard input: {"op", "bootstrap", "args"}; one per line back:
 * {"result"} or {"failure"}. A refusal by the broker is a result: {"error": code}.
 */
public final class Runner {
    static final ObjectMapper JSON = new ObjectMapper();

    private Runner() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }

    private static ObjectNode answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            answer.set("result", perform(request));
        } catch (Exception failure) {
            StringWriter trace = new StringWriter();
            failure.printStackTrace(new PrintWriter(trace));
            answer.put("failure", trace.toString());
        }
        return answer;
    }

    private static JsonNode perform(JsonNode request) throws Exception {
        String bootstrap = request.get("bootstrap").asText();
        String op = request.get("op").asText();
        JsonNode args = request.get("args");
        try {
            switch (op) {
                case "produce":
                    return Data.produce(bootstrap, args);
                case "consume":
                    return Data.consume(bootstrap, args);
                case "offset_for_time":
                    return Data.offsetForTime(bootstrap, args);
                default:
                    return Administration.perform(op, bootstrap, args);
            }
        } catch (ExecutionException failure) {
            return error(failure.getCause());
        } catch (ApiException failure) {
            return error(failure);
        }
    }

    /** The broker's error code; what is no answer of a broker is thrown on. */
    static JsonNode error(Throwable cause) throws ExecutionException {
        if (!(cause instanceof ApiException)) {
            throw new ExecutionException(cause);
        }
        return JSON.createObjectNode().put("error", Errors.forException(cause).code());
    }
}
