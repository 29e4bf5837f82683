package penstock.clients;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * One consumer of a group; says what happens to it in the lines that tests/integration/groups/member.py describes.
 */
public final class Member {
    private static final int SESSION_MS = 2000;
    private static final int HEARTBEAT_MS = 300;
    private static final Map<String, String> ASSIGNORS = Map.of(
            "range", "org.apache.kafka.clients.consumer.RangeAssignor",
            "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final KafkaConsumer<String, String> consumer;
    private final AtomicBoolean stopped = new AtomicBoolean();

    private Member(JsonNode wanted) {
        consumer = new KafkaConsumer<>(settings(wanted));
        consumer.subscribe(List.of(wanted.get("topic").asText()), new Listener());
    }

    public static void main(String[] arguments) throws Exception {
        Member member = new Member(Runner.JSON.readTree(arguments[0]));
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> member.stop(main)));
        member.work();
    }

    private static Map<String, Object> settings(JsonNode wanted) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", wanted.get("bootstrap").asText());
        settings.put("group.id", wanted.get("group").asText());
        settings.put("session.timeout.ms", SESSION_MS);
        settings.put("heartbeat.interval.ms", HEARTBEAT_MS);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        settings.put("max.poll.records", 1);
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        String strategy = wanted.path("strategy").asText("range");
        settings.put("partition.assignment.strategy", ASSIGNORS.get(strategy));
        if (wanted.has("instance")) {
            settings.put("group.instance.id", wanted.get("instance").asText());
        }
        return settings;
    }

    private void work() {
        try (consumer) {
            while (!stopped.get()) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(100))) {
                    process(one);
                }
            }
        } catch (WakeupException asked) {
            // The consumer is closed on the way out.
        }
    }

    private void process(ConsumerRecord<String, String> one) {
        tell("processed " + one.partition() + " " + one.offset() + " " + one.value());
        TopicPartition place = new TopicPartition(one.topic(), one.partition());
        try {
            consumer.commitSync(Map.of(place, new OffsetAndMetadata(one.offset() + 1)));
            tell("committed " + one.partition() + " " + one.offset());
        } catch (WakeupException asked) {
            throw asked;
        } catch (KafkaException failure) {
            tell("refused " + String.valueOf(failure.getMessage()).replace('\n', ' '));
        }
    }

    private void stop(Thread main) {
        stopped.set(true);
        consumer.wakeup();
        try {
            main.join();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private static synchronized void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private final class Listener implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell("assigned " + numbers(partitions) + " " + consumer.groupMetadata().generationId());
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            tell("revoked " + numbers(partitions));
        }

        private List<Integer> numbers(Collection<TopicPartition> partitions) {
            return partitions.stream().map(TopicPartition::partition).sorted().toList();
        }
    }
}
