package penstock.clients;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * An idempotent producer and a consumer that go on through whatever happens to the brokers, and say what they see:
 *
 * <pre>
 *   sent PARTITION VALUE      acknowledged PARTITION OFFSET VALUE      failed MESSAGE      read PARTITION OFFSET VALUE
 * </pre>
 *
 * The producer ends with standard input and says "done"; the consumer goes on until the process is ended.
 */
public final class Through {
    private static final int QUEUED_MAX = 200;
    private static final int PAUSE_MS = 5;
    private static final int DELIVERY_MS = 300_000;
    private static final int REQUEST_MS = 4_000;

    private final String topic;
    private final int partitions;
    private final Map<String, Object> shared = new HashMap<>();
    private volatile boolean stopped;

    private Through(JsonNode wanted) {
        topic = wanted.get("topic").asText();
        partitions = wanted.get("partitions").asInt();
        shared.put("bootstrap.servers", wanted.get("bootstrap").asText());
        shared.put("request.timeout.ms", REQUEST_MS);
    }

    public static void main(String[] arguments) throws Exception {
        Through one = new Through(Runner.JSON.readTree(arguments[0]));
        Thread reader = new Thread(one::read, "reader");
        reader.setDaemon(true);
        reader.start();
        Thread writer = new Thread(one::write, "writer");
        writer.start();
        while (System.in.read() >= 0) {
            // Until it is closed.
        }
        one.stopped = true;
        writer.join();
        tell("done");
        reader.join();
    }

    private void write() {
        Map<String, Object> settings = new HashMap<>(shared);
        settings.put("acks", "all");
        settings.put("enable.idempotence", true);
        settings.put("delivery.timeout.ms", DELIVERY_MS);
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        AtomicIntegerArray queued = new AtomicIntegerArray(partitions);
        long[] sent = new long[partitions];
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            while (!stopped) {
                for (int number = 0; number < partitions; number++) {
                    if (queued.get(number) < QUEUED_MAX) {
                        queued.incrementAndGet(number);
                        send(producer, number, number + ":" + sent[number]++, queued);
                    }
                }
                Thread.sleep(PAUSE_MS);
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void send(
            KafkaProducer<String, String> producer, int partition, String value, AtomicIntegerArray queued) {
        tell("sent " + partition + " " + value);
        producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, failure) -> {
            queued.decrementAndGet(partition);
            if (failure == null) {
                tell("acknowledged " + partition + " " + metadata.offset() + " " + value);
            } else {
                tell("failed " + String.valueOf(failure).replace('\n', ' '));
            }
        });
    }

    private void read() {
        Map<String, Object> settings = new HashMap<>(shared);
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", false);
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        List<TopicPartition> places = new ArrayList<>();
        for (int number = 0; number < partitions; number++) {
            places.add(new TopicPartition(topic, number));
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(places);
            places.forEach(place -> consumer.seek(place, 0));
            while (true) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(100))) {
                    tell("read " + one.partition() + " " + one.offset() + " " + one.value());
                }
            }
        } catch (RuntimeException failure) {
            tell("failed " + String.valueOf(failure).replace('\n', ' '));
        }
    }

    private static synchronized void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
