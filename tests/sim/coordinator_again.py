"""Coordinators whose topic is deleted and made again under them, mostly with other leaders, while groups commit.

A broker that coordinated a group before keeps what it knew of it, and follows the new topic in a directory of the same
name. When a topic is deleted that its groups had read, it has tombstones to write; nothing of them, nor of anything
else that was begun for the old topic, may reach the new one: all replicas have the same records after all brokers went
down, and only those that were committed since.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.sim.cluster_clients import Violation, create_topic
from tests.sim.cluster_story import BROKERS
from tests.sim.commit_history import CommitHistory, shown_offsets
from tests.sim.messages import NETWORK_TROUBLE, PARTITIONS
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.core.internal_topics import OFFSETS_TOPIC
from penstock.groups.records.keys import OffsetKey
from penstock.server.broker import Broker
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import delete_topics, find_coordinator, offset_commit, offset_fetch

_SETTINGS = {
    "log.roll.ms": "1",  # nearly every record begins a segment
    "log.cleaner.enable": "false",  # replicas are compared byte by byte
    "min.insync.replicas": "2",
    "replica.fetch.wait.max.ms": "500",
    "offsets.topic.replication.factor": str(BROKERS),
}
_GROUPS, _TOPICS = ("billing", "shipping", "audit"), ("orders", "payments")
_FILES_MAX = 500  # those of segments that are not synced yet stay open
_ANSWER_S, _SETTLED_S = 300, 60
# A client looks for its coordinator again then, or finds that the topic is gone.
_PASSING = {
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}  # fmt: skip


class CoordinatorStory(Scene):
    def __init__(self, loop: SimLoop) -> None:
        rng = loop.random("settings")
        self._power, partitions = rng.random() < 0.5, rng.choice(["1", "2"])
        promise = {"penstock.ack.after": "synced"} if self._power else {}
        super().__init__(loop, {**_SETTINGS, **promise, "offsets.topic.num.partitions": partitions})
        for machine in self.machines:
            machine.files.limit_files(_FILES_MAX)
        loop.executor.step_chance = rng.choice([0.0, 0.0, 0.1, 0.5])
        self.commits = CommitHistory(set(_TOPICS))
        self._clients: dict[tuple[str, str], SimClient] = {}
        self._is_calm = False  # the last deletion is over

    def tell(self) -> None:
        self._start()
        for name in _TOPICS:
            self.do(create_topic(self.client("admin"), 1, {}, name))
        writers = [self.loop.spawn("client", self._write(group)) for group in _GROUPS]
        last = self.rng.choice([0, 0, 0, 1])
        for number in range(last + 1):
            for machine in self.machines:
                self.loop.slow_down(machine.name, self.rng.choice([1, 1, 4]))
            self.loop.run_for(self.rng.choice([0.2, 0.5, 1]))
            self.do(self._delete_both(again=number < last or self.rng.random() < 0.5))
        for machine in self.machines:
            self.loop.quicken(machine.name)
        self._is_calm = True
        self._settle(lambda: all(writer.done() for writer in writers), "groups still try to commit")
        for writer in writers:
            writer.result()
        self._check()
        for machine in self.machines:
            machine.power_cut() if self._power else machine.kill()
        self._start()
        self._check()

    def _start(self) -> None:
        for machine in self.machines:
            machine.start()
        self._settle(lambda: all(machine.ready for machine in self.machines), "not started")

    def _settle(self, condition: Callable[[], bool], otherwise: str) -> None:
        end = self.loop.time() + _SETTLED_S
        while not condition():
            if self.loop.time() > end:
                raise Violation(otherwise)
            self.loop.run_for(0.1)

    async def _ask(self, who: str, host: str, api: ApiKey, request: Any) -> Any:
        client = self._clients.setdefault((who, host), SimClient(host, PORT, _ANSWER_S))
        try:
            return await client.call(api, request)
        except NETWORK_TROUBLE as error:  # nothing is lost on its way, and nobody goes down meanwhile
            raise Violation(f"{api.name} was never answered: {error!r}") from error

    async def _find(self, group: str) -> str:
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=[group])
        while True:
            found = await self._ask(group, self.rng.choice(self.names), ApiKey.FIND_COORDINATOR, request)
            if _is_done(found.coordinators[0].error_code):
                return str(found.coordinators[0].host)
            await asyncio.sleep(0.02)

    async def _write(self, group: str) -> None:
        """Commit now and then; behind the last deletion often, if at all, until its log is longer than the old one."""
        rng = self.loop.random(group)
        host, left = await self._find(group), rng.choice([0, 8, 16])
        while left > 0 or not self._is_calm:
            await asyncio.sleep(rng.choice([0.005, 0.02] if self._is_calm else [0.05, 0.2, 0.5]))
            topic = rng.choice(sorted(self.commits.topics))
            if not await self._commit(host, OffsetKey(group, topic, rng.randrange(PARTITIONS))):
                await asyncio.sleep(0.05)
                host = await self._find(group)
            elif self._is_calm:
                left -= 1

    async def _commit(self, host: str, key: OffsetKey) -> bool:
        number = self.commits.send(key)
        wanted = offset_commit.OffsetCommitRequestPartition(
            partition_index=key.partition, committed_offset=number, committed_metadata=""
        )
        topic = offset_commit.OffsetCommitRequestTopic(name=key.topic, partitions=[wanted])
        request = offset_commit.OffsetCommitRequest(group_id=key.group, topics=[topic])
        answer = await self._ask(key.group, host, ApiKey.OFFSET_COMMIT, request)
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        self.commits.answered(number, code)
        return _is_done(code)

    async def _delete_both(self, *, again: bool) -> None:
        """The coordinators' topic, and one that groups have committed offsets of: maybe for good."""
        commits, deleted = self.commits, self.commits.over[OFFSETS_TOPIC]
        for number in range(self.rng.choice([0, 1, 1, 2])):  # with more topics, others lead the next one
            await create_topic(self.client("admin"), 1, {}, f"extra-{deleted}-{number}")
        await self._delete(OFFSETS_TOPIC)
        commits.over[OFFSETS_TOPIC] += 1
        await asyncio.sleep(self.rng.choice([0.05, 0.2, 0.5]))
        name = self.rng.choice(sorted(commits.topics))
        commits.topics.remove(name)
        await self._delete(name)
        if again:
            await create_topic(self.client("admin"), 1, {}, name)
            while not all(name in broker.metadata.image.topics for broker in self._brokers()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            commits.topics.add(name)
        commits.over[name] += 1

    async def _delete(self, name: str) -> None:
        """Until no broker knows of the one that was deleted."""
        self.commits.begun[name] += 1
        state = delete_topics.DeleteTopicState(name=name)
        request = delete_topics.DeleteTopicsRequest(topics=[state], timeout_ms=_ANSWER_S * 1000)
        while True:
            answer = await self._ask("admin", self.rng.choice(self.names), ApiKey.DELETE_TOPICS, request)
            if _is_done(answer.responses[0].error_code):
                break
            await asyncio.sleep(0.05)  # nobody has asked for a coordinator yet
        gone = answer.responses[0].topic_id
        while any(self._knows(broker, gone) for broker in self._brokers()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def _knows(self, broker: Broker, topic_id: bytes) -> bool:
        return topic_id in broker.table.by_id or topic_id in broker.metadata.image.topics_by_id

    def _brokers(self) -> list[Broker]:
        return [machine.broker for machine in self.machines if machine.broker is not None]

    def _check(self) -> None:
        self._settle(self._is_in_sync, "not in sync")
        self.loop.run_for(0.7)  # all have heard of the last high watermark
        for group in _GROUPS:
            self.commits.check_group(group, self.do(self._fetch(group)))
        topics = [broker.table.by_name[OFFSETS_TOPIC.encode()] for broker in self._brokers()]
        for index in range(topics[0].count):
            self.commits.check_replicas([topic.partitions[index] for topic in topics])

    def _is_in_sync(self) -> bool:
        whole = all(len(state.isr) == len(state.replicas) for state in self.states())
        return whole and all(map(self._is_settled, self.machines))

    async def _fetch(self, group: str) -> dict[OffsetKey, int]:
        wanted = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None)
        request = offset_fetch.OffsetFetchRequest(groups=[wanted])
        while True:
            answer = await self._ask("checker", await self._find(group), ApiKey.OFFSET_FETCH, request)
            if _is_done(answer.groups[0].error_code):
                return shown_offsets(answer.groups[0])
            await asyncio.sleep(0.05)


def _is_done(code: int) -> bool:
    """False: later, or elsewhere; nothing else may be told."""
    if code != ErrorCode.NONE and code not in _PASSING:
        raise Violation(f"a client was told {ErrorCode(code).name}")
    return code == ErrorCode.NONE
