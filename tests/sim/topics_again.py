"""A broker whose topic is deleted and made again under its name, while threads still work on the old one's files.

Retention, DeleteRecords and syncs with checkpoints of one generation are under way when it is deleted. Nothing of them
may reach the next one: what is acknowledged in the last generation is there after a crash, at its offsets, from 0 on,
and no producer is known but its own.

In half of the stories each request has batches for all partitions, and gives way between them (the bounds are scaled
down): the topic goes in the midst of one, and is there again before it goes on. It is answered all the same.
"""

import asyncio

from tests.sim.cluster_clients import PASSING, Violation, create_topic, read_partition
from tests.sim.cluster_deleting import delete_request
from tests.sim.cluster_story import replica_of
from tests.sim.messages import NETWORK_TROUBLE, PARTITIONS, TOPIC, batch_of, idempotent, produce_request
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import delete_topics, produce

_SETTINGS = {"log.initial.task.delay.ms": "10", "log.retention.check.interval.ms": "50"}
_BY_NAME = 5  # of DeleteTopics: the last version without topic ids
_BY_ID = 13  # of Produce: the first version with them
_GONE = PASSING | {ErrorCode.UNKNOWN_TOPIC_ID}
_PRODUCER = 1000  # see `idempotent`


class AgainStory(Scene):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, _SETTINGS, brokers=1)
        self.machine = self.machines[0]
        loop.executor.step_chance = self.rng.choice([0.0, 0.1, 0.5])
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._late: list[asyncio.Task[None]] = []  # by id: of these nothing gets into the next one
        self._wide = self.rng.random() < 0.5

    def tell(self) -> None:
        self.machine.start()
        self.loop.run_until(lambda: self.machine.ready)
        last = self.rng.randint(1, 3)
        for generation in range(last + 1):
            self._create(is_last=generation == last)
            self._use(generation, is_last=generation == last)
        self.loop.slow_down(self.machine.name, 1)
        self._until_done(self._late)
        self.loop.run_for(60)  # whatever was on its way has arrived
        self.check_log(last)
        if self.rng.random() < 0.5:
            self.machine.kill()
        else:
            self.machine.power_cut()
        self.machine.start()
        self.loop.run_until(lambda: self.machine.ready)
        self.loop.run_for(2)
        self.check_log(last)

    def _create(self, *, is_last: bool) -> None:
        configs = {
            "min.insync.replicas": "1",
            "penstock.ack.after": "synced",
            "internal.segment.bytes": self.rng.choice(["150", "400", "1000000"]),
            "retention.ms": "-1" if is_last or self.rng.random() < 0.3 else "1",
        }
        self.do(create_topic(self.client("admin"), 1, configs))
        self.loop.run_until(self._is_served)

    def _is_served(self) -> bool:
        assert self.machine.broker is not None
        topic = self.machine.broker.table.by_name.get(TOPIC.encode())
        return topic is not None and len(topic.led) == PARTITIONS

    def _use(self, generation: int, *, is_last: bool) -> None:
        """Producers write, some records are deleted, and in the midst of it the topic is, unless it is the last."""
        rng = self.rng
        self.loop.slow_down(self.machine.name, rng.choice([1, 10, 50]))
        self.acknowledged = {}
        if self._wide:
            work = self._write_all(generation, rng.randint(5, 20), self.acknowledged)
            (self._tasks if is_last else self._late).append(self.loop.spawn("client", work))
        for index in range(PARTITIONS):
            if not self._wide:
                self._begin(self._write(generation, index, rng.randint(5, 20), self.acknowledged))
            if not is_last and rng.random() < 0.5:
                self._begin(self._delete_records(index, self.acknowledged))
        if not is_last:
            self.loop.run_for(rng.choice([0.01, 0.1, 0.5, 2]))
            self._delete_topic()
        # Clients go by name: what they sent to the old one must not be on its way to the new one.
        self._until_done(self._tasks)
        self._tasks = []

    def _until_done(self, tasks: list[asyncio.Task[None]]) -> None:
        self.loop.run_until(lambda: all(task.done() for task in tasks))
        for task in tasks:
            task.result()

    def _begin(self, work: object) -> None:
        task = self.loop.spawn("client", work)  # type: ignore[arg-type]
        self._tasks.append(task)

    async def _write(
        self, generation: int, index: int, count: int, acknowledged: dict[tuple[int, int], bytes]
    ) -> None:
        client = SimClient(self.machine.name, PORT, 300)
        for number in range(count):
            value = b"%d-%d-%d" % (generation, index, number)
            batch = batch_of([value], idempotent(generation, number))
            try:
                answered = await client.call(
                    ApiKey.PRODUCE, produce_request(index, batch, timeout_ms=300_000)
                )
            except NETWORK_TROUBLE:
                return
            answer = answered.responses[0].partition_responses[0]
            if answer.error_code in PASSING:
                return
            if answer.error_code != ErrorCode.NONE:
                raise Violation(f"a producer was told {ErrorCode(answer.error_code).name}")
            acknowledged[index, answer.base_offset] = value

    async def _write_all(
        self, generation: int, count: int, acknowledged: dict[tuple[int, int], bytes]
    ) -> None:
        assert self.machine.broker is not None
        topic_id = self.machine.broker.table.by_name[TOPIC.encode()].id
        client = SimClient(self.machine.name, PORT, 600)
        for number in range(count):
            values = [b"%d-%d-%d" % (generation, index, number) for index in range(PARTITIONS)]
            batches = [batch_of([value], idempotent(generation, number)) for value in values]
            data = [produce.PartitionProduceData(index=at, records=each) for at, each in enumerate(batches)]
            topic = produce.TopicProduceData(topic_id=topic_id, partition_data=data)
            request = produce.ProduceRequest(acks=-1, timeout_ms=300_000, topic_data=[topic])
            try:
                answered = await client.call(ApiKey.PRODUCE, request, _BY_ID)
            except TimeoutError as error:  # nothing is lost on its way here
                raise Violation(f"request {number} of {generation} was never answered") from error
            answers = answered.responses[0].partition_responses
            for answer in answers:
                if answer.error_code == ErrorCode.NONE:
                    acknowledged[answer.index, answer.base_offset] = values[answer.index]
                elif answer.error_code not in _GONE:
                    raise Violation(f"a producer was told {ErrorCode(answer.error_code).name}")
            if any(answer.error_code for answer in answers):
                return

    async def _delete_records(self, index: int, acknowledged: dict[tuple[int, int], bytes]) -> None:
        client, rng = SimClient(self.machine.name, PORT, 300), self.loop.random("deleter")
        for _ in range(3):
            await asyncio.sleep(rng.choice([0.01, 0.1, 0.4]))
            known = [offset for where, offset in acknowledged if where == index]
            if known:
                try:
                    await client.call(ApiKey.DELETE_RECORDS, delete_request(index, max(known)))
                except NETWORK_TROUBLE:
                    return

    def _delete_topic(self) -> None:
        request = delete_topics.DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=300_000)
        client = SimClient(self.machine.name, PORT, 300)
        answer = self.do(client.call(ApiKey.DELETE_TOPICS, request, _BY_NAME))
        assert answer.responses[0].error_code == ErrorCode.NONE

    def check_log(self, generation: int) -> None:
        for index in range(PARTITIONS):
            log = replica_of(self.machine, index).log
            offsets = sorted(offset for where, offset in self.acknowledged if where == index)
            if (log.start_offset, log.end_offset) != (0, len(offsets)) or offsets != list(
                range(len(offsets))
            ):
                raise Violation(
                    f"{index} goes from {log.start_offset} to {log.end_offset}, acknowledged are {offsets}"
                )
            known = [producer.producer_id for producer in log.producers.copy()]
            if known != [_PRODUCER + generation]:
                raise Violation(f"{index} knows the producers {known}, and {generation} wrote")
            values = self._values(index)
            if values != [self.acknowledged[index, offset] for offset in offsets]:
                raise Violation(f"{index} holds {values}")

    def _values(self, index: int) -> list[bytes]:
        read: list[bytes] = self.do(read_partition(self.client("reader"), index))
        return read
