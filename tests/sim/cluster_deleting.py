"""A simulated cluster whose topic loses its beginning on demand: what was said to be deleted is never seen again."""

import asyncio
from random import Random

from tests.sim.cluster_clients import PASSING, ClusterClient, History, Violation
from tests.sim.cluster_story import Story, bytes_below, replica_of
from tests.sim.messages import NETWORK_TROUBLE, PARTITIONS, PRODUCERS, TOPIC, fetch_request, records_of

from penstock.core.error_codes import ErrorCode
from penstock.records.reader import Record
from penstock.testing.sim_broker import SESSION_SECONDS
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import delete_records

LEADERS_ONLY = 10
DELETERS = 2  # of each partition: requests overlap
_TIMEOUT_MS = 1500


class Deletions:
    """What was asked for, and what was answered, by partition."""

    def __init__(self) -> None:
        self.asked = dict.fromkeys(range(PARTITIONS), 0)
        self.done = dict.fromkeys(range(PARTITIONS), 0)
        self.peeks = 0


def delete_request(
    partition: int, offset: int, timeout_ms: int = _TIMEOUT_MS
) -> delete_records.DeleteRecordsRequest:
    wanted = delete_records.DeleteRecordsPartition(partition_index=partition, offset=offset)
    topic = delete_records.DeleteRecordsTopic(name=TOPIC, partitions=[wanted])
    return delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)


async def delete(
    deletions: Deletions, history: History, client: ClusterClient, partition: int, rng: Random
) -> None:
    """Somebody who deletes a little more now and then; an answer without error is a promise."""
    while True:
        await asyncio.sleep(rng.choice([0.05, 0.2, 0.5]))
        known = [offset for where, offset in history.acknowledged if where == partition]
        if not known:
            continue
        offset = rng.randint(deletions.asked[partition], max(known) + 1)
        deletions.asked[partition] = offset
        try:
            answered = await client.ask_leader(
                partition, ApiKey.DELETE_RECORDS, delete_request(partition, offset)
            )
        except NETWORK_TROUBLE:
            continue
        answer = answered.topics[0].partitions[0]
        if answer.error_code == ErrorCode.NONE:
            if answer.low_watermark < offset:
                raise Violation(
                    f"{partition} was asked for {offset} and deleted up to {answer.low_watermark}"
                )
            deletions.done[partition] = max(offset, deletions.done[partition])
        elif answer.error_code in (*PASSING, ErrorCode.OFFSET_OUT_OF_RANGE):
            client.forget(partition)
        else:
            raise Violation(f"a deletion was answered with {ErrorCode(answer.error_code).name}")


async def peek(deletions: Deletions, client: ClusterClient, partition: int, rng: Random) -> None:
    """Somebody who looks for what was deleted."""
    while True:
        await asyncio.sleep(rng.choice([0.02, 0.1]))
        done = deletions.done[partition]
        if not done:
            continue
        for record in await read_at(client, partition, rng.randrange(done)) or []:
            if record.offset < done:
                raise Violation(f"offset {record.offset} of {partition} is back, deleted up to {done}")
        deletions.peeks += 1


async def read_at(client: ClusterClient, partition: int, offset: int) -> list[Record] | None:
    """Records from `offset` on; None when it lies before the log, or nobody could tell."""
    try:
        epoch = await client.epoch(partition)
        request = fetch_request(partition, offset, epoch=epoch, max_wait_ms=0)
        answered = await client.ask_leader(partition, ApiKey.FETCH, request, LEADERS_ONLY)
    except NETWORK_TROUBLE:
        return None
    answer = answered.responses[0].partitions[0]
    if answer.error_code == ErrorCode.NONE:
        return records_of(answer, offset)
    if answer.error_code not in (*PASSING, ErrorCode.OFFSET_OUT_OF_RANGE):
        raise Violation(f"a reader at {offset} was told {ErrorCode(answer.error_code).name}")
    client.forget(partition)
    return None


class DeletingStory(Story):
    def begin(self) -> None:
        self.loop.executor.step_by_seed()
        for machine in self.machines:
            machine.start()
        self.deletions = deletions = Deletions()
        configs = {
            "internal.segment.bytes": self.rng.choice(["500", "2000"]),
            "min.insync.replicas": "2",
            "penstock.ack.after": "synced" if self.is_synced else "auto",
        }
        self.create(configs)
        self.begin_to_write()
        for partition in range(PARTITIONS):
            name = f"reader-{partition}"  # `check_data` ends them by these names
            self.spawn(name, peek(deletions, self.client(name), partition, self.loop.random(name)))
        for number in range(DELETERS * PARTITIONS):
            name = f"deleter-{number}"
            rng, partition = self.loop.random(name), number % PARTITIONS
            self.spawn(name, delete(deletions, self.history, self.client(name), partition, rng))

    def misfortune(self) -> None:
        if self.rng.random() < 0.4 and self._is_whole():
            self._let_one_in_and_lead(self.rng.randrange(PARTITIONS))
        else:
            super().misfortune()

    def _let_one_in_and_lead(self, index: int) -> None:
        """One was away while records were deleted and none written: it has all there is, and the others die at once."""
        state = self._state(index)
        follower = self.rng.choice([replica for replica in state.replicas if replica != state.leader])
        machine = self.machines[follower - 1]
        for number in range(index, PRODUCERS, PARTITIONS):
            for name in self.names:
                self.loop.network.stall(f"producer-{number}", name)
        self.let_pass(0.3)
        machine.kill()
        self.let_pass(SESSION_SECONDS + self.rng.uniform(0.3, 1))
        machine.start()
        if self._wait_until(lambda: follower in self._state(index).isr):
            for broker in self.machines:
                if broker is not machine and broker.running:
                    self.turn_off(broker, power=False)
            self.let_pass(SESSION_SECONDS + 0.5)
        self.loop.network.heal_all()

    def check_progress(self) -> None:
        super().check_progress()
        before = dict(self.deletions.done)
        for _ in range(20):
            self.let_pass(0.5)
            if all(self.deletions.done[index] > before[index] for index in before):
                return
        raise Violation("nothing can be deleted any more")

    def check_data(self) -> None:
        """Everything acknowledged that nobody deleted is there; what was deleted is not, at any replica."""
        deleters = ("deleter", DELETERS * PARTITIONS)
        for kind, count in (("producer", PRODUCERS), ("reader", PARTITIONS), deleters):
            for number in range(count):
                self.loop.crash(f"{kind}-{number}")
        self.let_pass(2)
        for index in range(PARTITIONS):
            done, asked = self.deletions.done[index], self.deletions.asked[index]
            kept = {offset for where, offset in self.history.acknowledged if where == index}
            replicas = [replica_of(machine, index) for machine in self.machines]
            for replica in replicas:
                if replica.log.start_offset < done:
                    raise Violation(
                        f"{index}: a replica begins at {replica.log.start_offset}, deleted up to {done}"
                    )
            start = max(replica.log.start_offset for replica in replicas)
            if start > asked:
                raise Violation(f"{index} begins at {start}, but only {asked} was asked for")
            limit = min(replica.high_watermark for replica in replicas)
            if max(kept) >= limit:
                raise Violation(f"{index} ends at {limit}, but {max(kept)} was acknowledged")
            found = [bytes_below(replica, limit, start) for replica in replicas]
            if any(content != found[0] for content in found):
                raise Violation(f"the replicas of {index} differ from {start} to {limit}")
