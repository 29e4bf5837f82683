"use strict";
// Performs the operations of the scenario catalog with KafkaJS.
//
// One JSON object per line on standard input: {"op", "bootstrap", "args"}; one per line back: {"result"} or
// {"failure"}. A refusal by the broker is a result: {"error": code}.

const readline = require("node:readline");
const { Kafka, logLevel, CompressionTypes, CompressionCodecs } = require("kafkajs");
const codecs = require("./codecs");

const OK = "ok";
const TOPIC = 2;
const TOPIC_CONFIG_SOURCE = 1;
const TOPIC_ALREADY_EXISTS = 36;
const COMPRESSION = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

codecs.install(CompressionCodecs, CompressionTypes);

function client(bootstrap) {
  return new Kafka({
    clientId: "scenarios",
    brokers: [bootstrap],
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 10 },
  });
}

const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));

// KafkaJS takes headers as an object: lines of one name become a list.
function headers(lines) {
  const named = {};
  for (const [name, value] of lines) {
    named[name] = name in named ? [named[name], bytes(value)].flat() : bytes(value);
  }
  return named;
}

function outgoing(record, partition) {
  const message = {
    partition,
    key: bytes(record.key),
    value: bytes(record.value),
    headers: headers(record.headers),
  };
  if (record.timestamp !== null) message.timestamp = String(record.timestamp);
  return message;
}

async function produce(bootstrap, args) {
  const producer = client(bootstrap).producer({
    idempotent: args.idempotent ?? false,
    maxInFlightRequests: 1,
    allowAutoTopicCreation: false,
  });
  await producer.connect();
  const messages = args.records.map((record) => outgoing(record, args.partition));
  const size = args.batch_records ?? messages.length;
  try {
    for (let start = 0; start < messages.length; start += size) {
      await producer.send({
        topic: args.topic,
        acks: args.acks ?? -1,
        compression: COMPRESSION[args.compression ?? "none"],
        messages: messages.slice(start, start + size),
      });
    }
  } finally {
    await producer.disconnect();
  }
  return { acknowledged: messages.length };
}

async function configEntries(admin, args) {
  const { resources } = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [{ type: TOPIC, name: args.topic, configNames: args.names }],
  });
  return resources[0].configEntries;
}

const entriesBy = (entries, value) => Object.fromEntries(entries.map((one) => [one.configName, value(one)]));

async function edges(admin, args) {
  const offsets = await admin.fetchTopicOffsets(args.topic);
  return offsets.find((one) => one.partition === args.partition);
}

const ADMIN = {
  async create_topic(admin, args) {
    const topic = {
      topic: args.topic,
      numPartitions: args.partitions,
      replicationFactor: args.replicas ?? 1,
      configEntries: Object.entries(args.configs ?? {}).map(([name, value]) => ({ name, value })),
    };
    // It answers false, not an error, when the topic exists.
    const made = await admin.createTopics({ topics: [topic], waitForLeaders: false });
    return made ? OK : { error: TOPIC_ALREADY_EXISTS };
  },
  async delete_topic(admin, args) {
    await admin.deleteTopics({ topics: [args.topic] });
    return OK;
  },
  async list_topics(admin) {
    return admin.listTopics();
  },
  async describe_topic(admin, args) {
    const { topics } = await admin.fetchTopicMetadata({ topics: [args.topic] });
    const partitions = topics[0].partitions.map((one) => ({
      id: one.partitionId,
      leader: one.leader,
      isr: one.isr,
      replicas: one.replicas,
    }));
    return { partitions: partitions.sort((a, b) => a.id - b.id) };
  },
  async create_partitions(admin, args) {
    await admin.createPartitions({ topicPartitions: [{ topic: args.topic, count: args.count }] });
    return OK;
  },
  async describe_config(admin, args) {
    return entriesBy(await configEntries(admin, args), (one) => one.configValue);
  },
  async describe_default(admin, args) {
    return entriesBy(await configEntries(admin, args), (one) => one.configSource !== TOPIC_CONFIG_SOURCE);
  },
  async alter_config(admin, args) {
    const configEntries = Object.entries(args.configs).map(([name, value]) => ({ name, value }));
    await admin.alterConfigs({
      validateOnly: false,
      resources: [{ type: TOPIC, name: args.topic, configEntries }],
    });
    return OK;
  },
  async delete_records(admin, args) {
    // It looks for the leader in what it knows already: let it learn of the topic first.
    await edges(admin, args);
    const partitions = [{ partition: args.partition, offset: String(args.before) }];
    await admin.deleteTopicRecords({ topic: args.topic, partitions });
    return { low_watermark: Number((await edges(admin, args)).low) };
  },
  async list_offsets(admin, args) {
    if (typeof args.at === "number") {
      const offsets = await admin.fetchTopicOffsetsByTimestamp(args.topic, args.at);
      return { offset: Number(offsets.find((one) => one.partition === args.partition).offset) };
    }
    const offsets = await edges(admin, args);
    return { offset: Number(args.at === "earliest" ? offsets.low : offsets.high) };
  },
  async describe_cluster(admin) {
    const { brokers, controller, clusterId } = await admin.describeCluster();
    const nodes = brokers.map((one) => ({ id: one.nodeId, host: one.host, port: one.port }));
    return { cluster_id: clusterId, controller, nodes };
  },
};

async function administer(op, bootstrap, args) {
  const admin = client(bootstrap).admin();
  await admin.connect();
  try {
    return await ADMIN[op](admin, args);
  } finally {
    await admin.disconnect();
  }
}

// The broker's error code, however deep KafkaJS has wrapped it.
function errorCode(failure) {
  if (failure === null || typeof failure !== "object") return undefined;
  if (typeof failure.code === "number") return failure.code;
  const inner = [failure.cause, failure.error, ...(failure.errors ?? []), ...(failure.partitions ?? [])];
  return inner.map(errorCode).find((code) => code !== undefined);
}

async function answer({ op, bootstrap, args }) {
  try {
    return { result: op === "produce" ? await produce(bootstrap, args) : await administer(op, bootstrap, args) };
  } catch (failure) {
    const code = errorCode(failure);
    return code === undefined ? { failure: String(failure.stack ?? failure) } : { result: { error: code } };
  }
}

async function main() {
  await codecs.ready;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
  }
}

main();
