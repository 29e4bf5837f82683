"""Logs that an I/O error took offline come back, shorter by what the kernel dropped: scenes of a cluster."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.sim.cluster_clients import read_partition
from tests.sim.cluster_compacting import CLEANING
from tests.sim.cluster_story import replica_of
from tests.sim.messages import TOPIC, batch_of, create_request, produce_request
from tests.sim.test_cluster_scenes import Scene

from penstock.controller.controller import Controller
from penstock.coordination.image import Topic as TopicImage
from penstock.core.error_codes import ErrorCode
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.reader import Record
from penstock.replication.partition import Partition
from penstock.replication.peer import PeerError
from penstock.services import alter_partition
from penstock.services.hosting.hosting import Hosting
from penstock.testing.sim_broker import PORT, SESSION_SECONDS, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.alter_partition import AlterPartitionRequest, AlterPartitionResponse

_RETRY_SECONDS = 5.0  # between two attempts to open what is offline
_OTHER = "other"


class ReopeningScene(Scene):
    def begin(self) -> None:
        for machine in self.machines:
            machine.files.drops_pages = False  # what is dropped, and when, is part of the scene
        super().begin()

    def put(self, index: int = 0, at: SimBroker | None = None, acks: int = -1) -> ErrorCode:
        request = produce_request(index, batch_of([b"x"]), acks=acks, timeout_ms=500)
        client = SimClient((at or self.leader(index)).name, PORT)
        answer = self.do(client.call(ApiKey.PRODUCE, request)).responses[0].partition_responses[0]
        return ErrorCode(answer.error_code)

    def put_key(self, key: bytes) -> None:
        batch = build_batch([Record(offset=0, timestamp=1, key=key, value=b"x")], BatchOptions())
        request = produce_request(0, bytes(batch), acks=1)
        answer = self.do(SimClient(self.leader().name, PORT).call(ApiKey.PRODUCE, request))
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    def fail_sync(self, machine: SimBroker, index: int = 0) -> Partition:
        assert machine.broker is not None
        replica = replica_of(machine, index)
        pattern = f"*{TOPIC}/Partition-{index}/*.log"
        machine.files.fail_next("sync", pattern)
        machine.broker._group_commit.request(replica)
        self.let_pass(0.05)
        assert replica.log.failed
        return replica

    def drop_half(self, machine: SimBroker, replica: Partition) -> None:
        """What was not synced is dropped: half of it had reached the disk."""
        file = machine.files.open(replica.log.active.paths()[0])
        file.truncate(file.size() // 2)
        file.close()

    def controller(self) -> Controller:
        every = [machine.broker.cluster.controller for machine in self.machines if machine.broker is not None]
        return next(controller for controller in every if controller.is_active)

    def until(self, condition: Callable[[], bool]) -> None:
        assert self._wait_for(condition, 40)

    def _wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        end = self.loop.time() + seconds
        while not condition():
            if self.loop.time() >= end:
                return False
            self.let_pass(0.01)
        return True

    def count(self, index: int = 0) -> int:
        return len(self.do(read_partition(self.client("checker"), index)))


@pytest.fixture
def scene() -> Iterator[ReopeningScene]:
    with SimLoop(2) as loop:
        scene = ReopeningScene(loop, synced=False)
        scene.begin()
        yield scene


def test_what_led_takes_nothing_under_its_old_epoch_when_its_log_is_open_again(
    scene: ReopeningScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = scene.leader()
    for _ in range(8):
        assert scene.put() is ErrorCode.NONE
    scene.let_pass(1)
    honest, honest_reopen = Hosting._open, Hosting._reopen

    async def slow(hosting: Hosting, image: TopicImage, *args: Any) -> dict[int, Partition]:
        if image.name == _OTHER and hosting is leader.broker.hosting:  # type: ignore[union-attr]
            await asyncio.sleep(_RETRY_SECONDS + 3)
        return await honest(hosting, image, *args)

    async def slow_reopen(hosting: Hosting, topic: Any, partition: Partition) -> None:
        if partition.index:
            await asyncio.sleep(1)
        await honest_reopen(hosting, topic, partition)

    # It is still busy with another topic's files when it is replaced, and then with those of the other logs.
    monkeypatch.setattr(Hosting, "_open", slow)
    monkeypatch.setattr(Hosting, "_reopen", slow_reopen)
    replica = scene.fail_sync(leader)
    scene.drop_half(leader, replica)
    admin = SimClient(scene.followers()[0].name, PORT)
    scene.do(admin.call(ApiKey.CREATE_TOPICS, create_request({}, name=_OTHER, replicas=3, timeout_ms=100)))
    scene.until(lambda: not replica.log.failed)
    assert scene._state(0).leader_epoch > 0
    assert scene.put(at=leader) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    scene.until_whole()
    assert scene.count() == 8


def test_a_leader_that_is_alone_begins_its_epoch_where_its_log_ends_when_it_is_open_again(
    scene: ReopeningScene,
) -> None:
    scene.set_topic("min.insync.replicas", "1")
    leader, others = scene.leader(), scene.followers()
    for machine in others:
        machine.kill()
    scene.let_pass(SESSION_SECONDS * 3)
    for _ in range(8):
        assert scene.put(at=leader) is ErrorCode.NONE
    replica = scene.fail_sync(leader)
    scene.drop_half(leader, replica)
    scene.until(lambda: not replica.log.failed)
    assert replica.log.end_offset == 4
    for machine in others:
        machine.start()
    scene.until_whole()
    assert scene.put() is ErrorCode.NONE
    assert scene.count() == 5


def test_nobody_is_in_sync_with_a_log_that_is_offline(scene: ReopeningScene) -> None:
    """The only one in sync may lead again when its log is open. Until then nobody copies what may be gone then."""
    scene.set_topic("min.insync.replicas", "1")
    leader, others = scene.leader(), scene.followers()
    for machine in others:
        machine.kill()
    scene.let_pass(SESSION_SECONDS * 3)
    for _ in range(8):
        assert scene.put(at=leader) is ErrorCode.NONE
    number = scene._state(0).leader
    replica = scene.fail_sync(leader)
    leader.files.fail_next("open", f"*{TOPIC}/Partition-0/*.log", count=1 << 30)
    scene.until(lambda: scene._state(0).leader_epoch > 0)
    for machine in others:
        machine.start()
    scene.let_pass(_RETRY_SECONDS * 3)
    state = scene._state(0)
    assert (state.isr, state.suspects) == ((), (number,)), "it cannot tell what it has"
    leader.files.mend()
    scene.drop_half(leader, replica)
    scene.until_whole()
    assert len({replica_of(machine, 0).log.end_offset for machine in scene.machines}) == 1


def test_a_leader_whose_log_failed_gives_nobody_up(scene: ReopeningScene) -> None:
    """The others are killed before it has said that its log is in doubt; they have everything."""
    scene.set_topic("min.insync.replicas", "1")
    leader, others = scene.leader(), scene.followers()
    for _ in range(8):
        assert scene.put() is ErrorCode.NONE
    scene.let_pass(1)
    replica = scene.fail_sync(leader)
    scene.drop_half(leader, replica)
    for machine in others:
        machine.kill()
    scene.until(lambda: not replica.log.failed)
    for machine in others:
        machine.start()
    scene.until_whole()
    assert scene.count() == 8


def test_a_leader_whose_log_failed_does_not_ask_again_for_what_gives_others_up(
    scene: ReopeningScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked while it had everything; the controller hears of it late, and once."""
    scene.set_topic("min.insync.replicas", "1")
    leader = scene.leader()
    for _ in range(8):
        assert scene.put() is ErrorCode.NONE
    scene.let_pass(1)
    assert leader.broker is not None
    replica, controller = replica_of(leader, 0), scene.controller()

    heard: list[AlterPartitionRequest] = []

    async def asked(request: AlterPartitionRequest) -> AlterPartitionResponse:
        if not replica.log.failed or heard:
            raise PeerError("it is lost")
        heard.append(request)
        return await alter_partition.answer(controller, request)

    monkeypatch.setattr(leader.broker.cluster.keeper, "_ask", asked)
    for machine in scene.followers():
        scene.loop.network.stall(leader.name, machine.name)
    assert scene.put(at=leader, acks=1) is ErrorCode.NONE
    scene.until(lambda: replica.leading is not None and replica.leading.pending is not None)
    scene.fail_sync(leader)
    scene.drop_half(leader, replica)
    scene.until(lambda: not replica.log.failed)
    scene.loop.network.heal_all()
    scene.until_whole()
    assert scene.count() >= 8


def test_a_log_that_fails_while_others_are_opened_is_told_before_it_is_opened(
    scene: ReopeningScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in (0, 1):
        for _ in range(3):
            assert scene.put(index) is ErrorCode.NONE
    scene.let_pass(1)
    machine = next(broker for broker in scene.machines if broker not in (scene.leader(0), scene.leader(1)))
    opening: list[int] = []
    honest = Hosting._reopen

    async def slow(hosting: Hosting, topic: Any, partition: Partition) -> None:
        opening.append(partition.index)
        if len(opening) == 1:
            await asyncio.sleep(4)  # a long scan
        await honest(hosting, topic, partition)

    monkeypatch.setattr(Hosting, "_reopen", slow)
    machine.files.fail_next("write", f"*{TOPIC}/Partition-0/*.log")
    scene.put()
    scene.until(lambda: bool(opening))
    number = scene.machines.index(machine) + 1
    scene.until(lambda: number in scene._state(1).isr)
    for _ in range(4):
        assert scene.put(1) is ErrorCode.NONE
    replica = scene.fail_sync(machine, 1)
    scene.drop_half(machine, replica)
    scene.until(lambda: not replica.log.failed)
    scene.leader(1).kill()
    scene.let_pass(SESSION_SECONDS + 4)
    assert scene.count(1) == 7


def test_a_log_that_stays_offline_is_no_doubt_of_others(scene: ReopeningScene) -> None:
    machine = scene.leader()
    number = scene.machines.index(machine) + 1
    machine.files.fail_next("write", f"*{TOPIC}/Partition-0/*.log")
    machine.files.fail_next("open", f"*{TOPIC}/Partition-0/*.log", count=1 << 30)
    scene.put()
    scene.let_pass(_RETRY_SECONDS * 2)
    scene.until(lambda: number in scene._state(1).isr)
    before = scene._state(1)
    scene.let_pass(_RETRY_SECONDS * 6)
    assert scene._state(1) == before
    machine.files.mend()
    scene.until_whole()
    assert scene.put() is ErrorCode.NONE


def test_a_broken_exchange_of_compaction_holds_up_nobody() -> None:
    """Its log is opened again, and whoever is about to take over an answer of the leader does not wait for that."""
    with SimLoop(1) as loop:
        scene = ReopeningScene(loop, CLEANING, synced=True)
        scene.begin()
        for setting, value in (("internal.segment.bytes", "300"), ("min.cleanable.dirty.ratio", "0.01")):
            scene.set_topic(setting, value)
        scene.set_topic("min.insync.replicas", "1")
        for number in range(20):
            scene.put_key(b"%d" % (number % 3))
        scene.let_pass(2)
        leader, follower = scene.leader(), scene.followers()[0]
        replica = replica_of(follower, 0)
        # It gets a record that it has to write something down for, while it compacts for the first time.
        loop.network.stall(leader.name, follower.name)
        scene.put_key(b"new")
        follower.files.fail_next("rename", "*Partition-0*.swap")
        loop.slow_down(follower.name, 20)
        scene.set_topic("cleanup.policy", "compact")
        scene.until(lambda: any(segment.pinned for segment in replica.log.segments))
        loop.network.heal_all()
        loop.slow_down(follower.name, 1)
        scene.until(lambda: replica.log.failed)
        scene.until_whole()
        assert replica.log.end_offset == replica_of(leader, 0).log.end_offset
