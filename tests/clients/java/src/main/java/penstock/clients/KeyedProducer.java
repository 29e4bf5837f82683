package penstock.clients;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.PrintStream;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes numbered values of many keys until its input ends; says what became of each, as
 * tests/integration/retiring/keyed.py describes it.
 */
public final class KeyedProducer {
    private KeyedProducer() {}

    public static void main(String[] arguments) throws Exception {
        JsonNode wanted = Runner.JSON.readTree(arguments[0]);
        String topic = wanted.get("topic").asText();
        String name = wanted.get("name").asText();
        int keys = wanted.get("keys").asInt();
        Semaphore room = new Semaphore(wanted.get("queued").asInt());
        AtomicBoolean stopped = new AtomicBoolean();
        Thread input = new Thread(() -> waitForEnd(stopped));
        input.setDaemon(true);
        input.start();
        PrintStream out = new PrintStream(System.out, false);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings(wanted))) {
            for (long sent = 0; !stopped.get(); sent++) {
                if (!room.tryAcquire()) {
                    out.println("full");
                    out.flush();
                    room.acquire();
                }
                String key = name + sent % keys;
                String value = key + ":" + sent / keys;
                producer.send(new ProducerRecord<>(topic, key, value), (where, error) -> {
                    if (error == null) {
                        out.println("stored " + where.partition() + " " + value);
                    } else {
                        out.println("failed " + error);
                    }
                    room.release();
                });
                if (sent % 100 == 0) {
                    out.flush();
                }
            }
        }
        out.println("done");
        out.flush();
    }

    private static Map<String, Object> settings(JsonNode wanted) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", wanted.get("bootstrap").asText());
        settings.put("acks", "all");
        settings.put("enable.idempotence", wanted.get("idempotent").asBoolean());
        settings.put("linger.ms", 2);
        settings.put("batch.size", 4096);
        settings.put("metadata.max.age.ms", 500);
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        return settings;
    }

    private static void waitForEnd(AtomicBoolean stopped) {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (java.io.IOException error) {
            // As good as an end.
        }
        stopped.set(true);
    }
}
