import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams: counts messages by key, behind a repartition topic and in a store with a changelog.
 *
 * <p>Arguments: bootstrap, name, source, target, directory; and a processing guarantee, if any.
 */
public final class StreamsApp {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.putAll(Map.of(
                "bootstrap.servers", arguments[0],
                "application.id", arguments[1],
                "state.dir", arguments[4],
                "auto.offset.reset", "earliest",
                "commit.interval.ms", "100",
                "statestore.cache.max.bytes", "0",
                "processing.guarantee", arguments.length > 5 ? arguments[5] : "at_least_once"));
        var text = Serdes.String();
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(text, text))
                .groupBy((key, value) -> key, Grouped.with("by-key", text, text))
                .count()
                .toStream()
                .mapValues(String::valueOf)
                .to(arguments[3], Produced.with(text, text));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
