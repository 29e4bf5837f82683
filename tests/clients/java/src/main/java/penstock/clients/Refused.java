package penstock.clients;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Asks for one thing that the broker may not serve; says how that ended: {"refused": words} or {"worked": words}. */
public final class Refused {
    /** Where a client hangs, the test shall fail rather than wait for ever. */
    private static final Duration HANG = Duration.ofSeconds(60);

    private Refused() {}

    private interface Attempt {
        Object run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        JsonNode wanted = json.readTree(arguments[0]);
        Attempt attempt = attempt(wanted);
        Map<String, String> ended = new HashMap<>();
        try {
            ended.put("worked", String.valueOf(attempt.run()));
        } catch (ExecutionException failure) {
            ended.put("refused", failure.getCause().toString());
        } catch (Exception failure) {
            ended.put("refused", failure.toString());
        }
        System.out.println(json.writeValueAsString(ended));
    }

    private static Attempt attempt(JsonNode wanted) {
        String name = wanted.get("name").asText();
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", wanted.get("bootstrap").asText());
        settings.put("client.id", name);
        List<String> topics = List.of(wanted.get("topic").asText());
        switch (wanted.get("feature").asText()) {
            case "transactions":
                settings.put("transactional.id", name);
                settings.put("max.block.ms", HANG.toMillis());
                return () -> begin(settings);
            case "groups":
                settings.put("group.id", name);
                settings.put("group.protocol", "consumer");
                return () -> consume(settings, topics);
            case "share groups":
                settings.put("group.id", name);
                return () -> share(settings, topics);
            case "fencing":
                return () -> fence(settings, name);
            default:
                return () -> acls(settings);
        }
    }

    private static Object begin(Map<String, Object> settings) {
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            producer.initTransactions();
            return "began";
        }
    }

    private static Object consume(Map<String, Object> settings, List<String> topics) {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(topics);
            return consumer.poll(HANG).count();
        }
    }

    private static Object share(Map<String, Object> settings, List<String> topics) {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(topics);
            return consumer.poll(HANG).count();
        }
    }

    private static Object fence(Map<String, Object> settings, String name) throws Exception {
        try (Admin admin = Admin.create(settings)) {
            return admin.fenceProducers(List.of(name)).all().get();
        }
    }

    private static Object acls(Map<String, Object> settings) throws Exception {
        try (Admin admin = Admin.create(settings)) {
            return admin.describeAcls(AclBindingFilter.ANY).values().get();
        }
    }
}
