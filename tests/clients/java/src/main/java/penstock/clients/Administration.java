package penstock.clients;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;

/** The admin side. */
final class Administration {
    private static final JsonNode OK = TextNode.valueOf("ok");
    private static final Map<String, OffsetSpec> PLACES =
            Map.of(
                    "earliest", OffsetSpec.earliest(),
                    "latest", OffsetSpec.latest(),
                    "max_timestamp", OffsetSpec.maxTimestamp());

    private Administration() {}

    static JsonNode perform(String op, String bootstrap, JsonNode args) throws Exception {
        try (Admin admin = Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap))) {
            switch (op) {
                case "create_topic":
                    return createTopic(admin, args);
                case "delete_topic":
                    admin.deleteTopics(List.of(topic(args))).all().get();
                    return OK;
                case "list_topics":
                    return Runner.JSON.valueToTree(admin.listTopics().names().get());
                case "describe_topic":
                    return describeTopic(admin, topic(args));
                case "create_partitions":
                    int count = args.get("count").asInt();
                    admin.createPartitions(Map.of(topic(args), NewPartitions.increaseTo(count))).all().get();
                    return OK;
                case "describe_config":
                    return describeConfig(admin, args, false);
                case "describe_default":
                    return describeConfig(admin, args, true);
                case "incremental_alter_config":
                    return alterConfig(admin, args);
                case "delete_records":
                    return deleteRecords(admin, args);
                case "list_offsets":
                    return listOffsets(admin, args);
                case "describe_cluster":
                    return describeCluster(admin);
                case "describe_log_dirs":
                    return describeLogDirs(admin, topic(args));
                case "describe_producers":
                    return describeProducers(admin, place(args));
                default:
                    throw new IllegalArgumentException("no operation " + op);
            }
        }
    }

    private static String topic(JsonNode args) {
        return args.get("topic").asText();
    }

    private static TopicPartition place(JsonNode args) {
        return new TopicPartition(topic(args), args.get("partition").asInt());
    }

    private static JsonNode createTopic(Admin admin, JsonNode args) throws Exception {
        Map<String, String> configs = new HashMap<>();
        args.path("configs").fields().forEachRemaining(one -> configs.put(one.getKey(), one.getValue().asText()));
        short replicas = (short) args.path("replicas").asInt(1);
        NewTopic wanted = new NewTopic(topic(args), args.get("partitions").asInt(), replicas).configs(configs);
        admin.createTopics(List.of(wanted)).all().get();
        return OK;
    }

    private static JsonNode describeTopic(Admin admin, String name) throws Exception {
        TopicDescription found = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
        ObjectNode answer = Runner.JSON.createObjectNode();
        ArrayNode partitions = answer.putArray("partitions");
        for (TopicPartitionInfo one : found.partitions()) {
            ObjectNode partition = partitions.addObject();
            partition.put("id", one.partition());
            partition.put("leader", one.leader() == null ? -1 : one.leader().id());
            partition.set("isr", ids(one.isr()));
            partition.set("replicas", ids(one.replicas()));
        }
        return answer;
    }

    private static ArrayNode ids(List<Node> nodes) {
        ArrayNode ids = Runner.JSON.createArrayNode();
        nodes.forEach(node -> ids.add(node.id()));
        return ids;
    }

    private static ConfigResource resource(JsonNode args) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic(args));
    }

    private static JsonNode describeConfig(Admin admin, JsonNode args, boolean defaults) throws Exception {
        Config found = admin.describeConfigs(List.of(resource(args))).all().get().get(resource(args));
        ObjectNode answer = Runner.JSON.createObjectNode();
        for (JsonNode name : args.get("names")) {
            ConfigEntry entry = found.get(name.asText());
            if (defaults) {
                answer.put(name.asText(), entry.source() != ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
            } else {
                answer.put(name.asText(), entry.value());
            }
        }
        return answer;
    }

    private static JsonNode alterConfig(Admin admin, JsonNode args) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        args.path("assign")
                .fields()
                .forEachRemaining(one -> changes.add(change(one.getKey(), one.getValue().asText(), AlterConfigOp.OpType.SET)));
        args.path("delete").forEach(name -> changes.add(change(name.asText(), null, AlterConfigOp.OpType.DELETE)));
        admin.incrementalAlterConfigs(Map.of(resource(args), changes)).all().get();
        return OK;
    }

    private static AlterConfigOp change(String name, String value, AlterConfigOp.OpType type) {
        return new AlterConfigOp(new ConfigEntry(name, value), type);
    }

    private static JsonNode deleteRecords(Admin admin, JsonNode args) throws Exception {
        RecordsToDelete before = RecordsToDelete.beforeOffset(args.get("before").asLong());
        long low = admin.deleteRecords(Map.of(place(args), before)).lowWatermarks().get(place(args)).get().lowWatermark();
        return Runner.JSON.createObjectNode().put("low_watermark", low);
    }

    private static JsonNode listOffsets(Admin admin, JsonNode args) throws Exception {
        JsonNode at = args.get("at");
        OffsetSpec spec = at.isTextual() ? PLACES.get(at.asText()) : OffsetSpec.forTimestamp(at.asLong());
        long offset = admin.listOffsets(Map.of(place(args), spec)).partitionResult(place(args)).get().offset();
        return Runner.JSON.createObjectNode().put("offset", offset);
    }

    private static JsonNode describeCluster(Admin admin) throws ExecutionException, InterruptedException {
        DescribeClusterResult found = admin.describeCluster();
        ObjectNode answer = Runner.JSON.createObjectNode();
        answer.put("cluster_id", found.clusterId().get());
        answer.put("controller", found.controller().get().id());
        ArrayNode nodes = answer.putArray("nodes");
        for (Node node : found.nodes().get()) {
            nodes.addObject().put("id", node.id()).put("host", node.host()).put("port", node.port());
        }
        return answer;
    }

    private static JsonNode describeLogDirs(Admin admin, String topic) throws Exception {
        List<Integer> brokers = admin.describeCluster().nodes().get().stream().map(Node::id).toList();
        long bytes = 0;
        for (Map<String, LogDirDescription> dirs : admin.describeLogDirs(brokers).allDescriptions().get().values()) {
            for (LogDirDescription dir : dirs.values()) {
                bytes += dir.replicaInfos().entrySet().stream()
                        .filter(one -> one.getKey().topic().equals(topic))
                        .mapToLong(one -> one.getValue().size())
                        .sum();
            }
        }
        return Runner.JSON.createObjectNode().put("bytes", bytes);
    }

    private static JsonNode describeProducers(Admin admin, TopicPartition place) throws Exception {
        ArrayNode answer = Runner.JSON.createArrayNode();
        for (ProducerState one : admin.describeProducers(List.of(place)).partitionResult(place).get().activeProducers()) {
            answer.addObject().put("last_sequence", one.lastSequence());
        }
        return answer;
    }
}
