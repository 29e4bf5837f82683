"use strict";
// One consumer of a group; says what happens to it in the lines that tests/integration/groups/member.py describes.

const { Kafka, logLevel } = require("kafkajs");

const SESSION_MS = 2000;
const HEARTBEAT_MS = 300;

const tell = (...words) => process.stdout.write(`${words.join(" ")}\n`);
const listed = (numbers) => `[${[...numbers].sort((a, b) => a - b).join(", ")}]`;

async function main() {
  const wanted = JSON.parse(process.argv[2]);
  const kafka = new Kafka({
    clientId: "member",
    brokers: [wanted.bootstrap],
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 100 },
  });
  const consumer = kafka.consumer({
    groupId: wanted.group,
    sessionTimeout: SESSION_MS,
    heartbeatInterval: HEARTBEAT_MS,
    maxWaitTimeInMs: 100,
    allowAutoTopicCreation: false,
  });
  let held = [];
  const release = () => {
    tell("revoked", listed(held));
    held = [];
  };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    if (held.length > 0) release();
    held = payload.memberAssignment[wanted.topic] ?? [];
    tell("assigned", listed(held));
  });
  consumer.on(consumer.events.REBALANCING, release);
  process.on("SIGTERM", async () => {
    await consumer.disconnect();
    process.exit(0);
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [wanted.topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      tell("processed", partition, message.offset, message.value.toString());
      const next = String(BigInt(message.offset) + 1n);
      try {
        await consumer.commitOffsets([{ topic, partition, offset: next }]);
      } catch (failure) {
        tell("refused", failure.message.replaceAll("\n", " "));
        throw failure; // KafkaJS joins again where that is what the refusal means.
      }
      tell("committed", partition, message.offset);
    },
  });
}

main();
