package penstock.clients;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.LongNode;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producing and consuming, by assigned partitions. */
final class Data {
    private static final Duration CONSUME_DEADLINE = Duration.ofSeconds(60);
    private static final int DEFAULT_BATCH_BYTES = 16_384;
    /** About what a record of the catalog takes: the client counts a batch in bytes. */
    private static final int RECORD_BYTES = 220;

    private Data() {}

    static JsonNode produce(String bootstrap, JsonNode args) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(producerSettings(bootstrap, args))) {
            for (JsonNode record : args.get("records")) {
                sent.add(producer.send(outgoing(args, record)));
            }
        }
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
        return Runner.JSON.createObjectNode().put("acknowledged", sent.size());
    }

    private static Properties producerSettings(String bootstrap, JsonNode args) {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        settings.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, args.path("compression").asText("none"));
        settings.put(ProducerConfig.ACKS_CONFIG, Integer.toString(args.path("acks").asInt(-1)));
        settings.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, args.path("idempotent").asBoolean(false));
        settings.put(ProducerConfig.MAX_REQUEST_SIZE_CONFIG, args.path("max_request_bytes").asInt(1 << 20));
        settings.put(ProducerConfig.LINGER_MS_CONFIG, 5);
        int records = args.path("batch_records").asInt(0);
        settings.put(ProducerConfig.BATCH_SIZE_CONFIG, records == 0 ? DEFAULT_BATCH_BYTES : records * RECORD_BYTES);
        return settings;
    }

    private static ProducerRecord<byte[], byte[]> outgoing(JsonNode args, JsonNode record) throws IOException {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        JsonNode timestamp = record.get("timestamp");
        return new ProducerRecord<>(
                args.get("topic").asText(),
                args.get("partition").asInt(),
                timestamp.isNull() ? null : timestamp.asLong(),
                bytes(record.get("key")),
                bytes(record.get("value")),
                headers);
    }

    private static byte[] bytes(JsonNode node) throws IOException {
        return node.isNull() ? null : node.binaryValue();
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap) {
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");
        settings.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 4 << 20);
        return new KafkaConsumer<>(settings);
    }

    private static TopicPartition place(JsonNode args) {
        return new TopicPartition(args.get("topic").asText(), args.get("partition").asInt());
    }

    static JsonNode consume(String bootstrap, JsonNode args) {
        ArrayNode found = Runner.JSON.createArrayNode();
        int count = args.get("count").asInt();
        long deadline = System.nanoTime() + CONSUME_DEADLINE.toNanos();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap)) {
            consumer.assign(List.of(place(args)));
            consumer.seek(place(args), args.get("offset").asLong());
            while (found.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    if (found.size() < count) {
                        found.add(incoming(record));
                    }
                }
            }
        }
        return found;
    }

    private static ObjectNode incoming(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode entry = Runner.JSON.createObjectNode();
        entry.put("offset", record.offset());
        entry.put("timestamp", record.timestamp());
        entry.put("key", record.key());
        entry.put("value", record.value());
        ArrayNode headers = entry.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value());
        }
        return entry;
    }

    static JsonNode offsetForTime(String bootstrap, JsonNode args) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap)) {
            Map<TopicPartition, OffsetAndTimestamp> found =
                    consumer.offsetsForTimes(Map.of(place(args), args.get("timestamp").asLong()));
            OffsetAndTimestamp at = found.get(place(args));
            return at == null ? NullNode.getInstance() : LongNode.valueOf(at.offset());
        }
    }
}
