"use strict";
// Asks for one thing that the broker may not serve; says how that ended: {"refused": words} or {"worked": words}.

const { Kafka, logLevel } = require("kafkajs");

const ANY = 1;

const ATTEMPTS = {
  async transactions(kafka, name) {
    const producer = kafka.producer({ transactionalId: name, maxInFlightRequests: 1, idempotent: true });
    await producer.connect();
    await producer.transaction();
    return "began";
  },
  async acls(kafka) {
    const admin = kafka.admin();
    await admin.connect();
    const filter = { resourceType: ANY, resourcePatternType: ANY, operation: ANY, permissionType: ANY };
    return JSON.stringify(await admin.describeAcls(filter));
  },
};

async function main() {
  const { bootstrap, name, feature } = JSON.parse(process.argv[2]);
  // So many tries take a quarter of an hour: whoever is told to try again does not come back from this.
  const retry = { initialRetryTime: 1000, maxRetryTime: 10_000, retries: 100 };
  const kafka = new Kafka({ clientId: name, brokers: [bootstrap], logLevel: logLevel.NOTHING, retry });
  let ended;
  try {
    ended = { worked: await ATTEMPTS[feature](kafka, name) };
  } catch (failure) {
    ended = { refused: `${failure.name}: ${failure.message}` };
  }
  process.stdout.write(`${JSON.stringify(ended)}\n`, () => process.exit(0));
}

main();
