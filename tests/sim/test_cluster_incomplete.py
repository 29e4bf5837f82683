"""Files of all that were in sync are gone: the one that stopped before leads, whatever happens between the starts."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.sim.messages import TOPIC, create_request
from tests.sim.test_cluster_deletions import delete
from tests.sim.test_cluster_lost_files import (
    DAMAGES,
    HOLES,
    OLD,
    RECORDS,
    FilesScene,
    all_but_the_owner_is_gone,
    directory_is_gone,
    end_is_gone,
    is_marked,
    last_are_gone,
    take,
)

from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.replication import following
from penstock.storage.layout import PARTITION_FILE
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.create_topics import CreatableReplicaAssignment, CreateTopicsRequest

Damage = Callable[[SimBroker], None]


class IncompleteScene(FilesScene):
    def written(self) -> None:
        for _ in range(RECORDS):
            assert self.produce(-1) is ErrorCode.NONE
        self.let_pass(1)

    def one_stops_before(self) -> tuple[SimBroker, list[SimBroker]]:
        """Whole, and out of sync; nobody writes any more, and the two others stop."""
        self.written()
        whole = self.followers()[0]
        whole.stop()
        self.let_pass(20)
        others = [machine for machine in self.machines if machine is not whole]
        assert len(self._state(0).isr) == 2
        for machine in others:
            machine.stop()
        return whole, others

    def restart(self, machine: SimBroker) -> None:
        machine.stop()
        machine.start()

    def kill(self, machine: SimBroker) -> None:
        machine.kill()
        machine.start()

    def disk_error(self, machine: SimBroker) -> None:
        assert machine.broker is not None
        machine.broker._disk_failed("a sync of another log failed")
        self.let_pass(12)

    def nothing(self, machine: SimBroker) -> None:
        pass


@pytest.fixture
def rows() -> Iterator[IncompleteScene]:
    with SimLoop(2) as loop:
        scene = IncompleteScene(loop, synced=True)
        scene.begin_with_small_segments()
        yield scene


BETWEEN = [
    IncompleteScene.nothing,
    IncompleteScene.restart,
    IncompleteScene.kill,
    IncompleteScene.disk_error,
]


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("damage", [*HOLES, *OLD, *DAMAGES, last_are_gone])
def test_the_one_that_stopped_before_leads(
    rows: IncompleteScene, damage: Damage, between: Callable[[IncompleteScene, SimBroker], None]
) -> None:
    whole, others = rows.one_stops_before()
    for machine in others:
        damage(machine)
    for machine in others:
        machine.start()
        rows.let_pass(8)
        if machine is others[0]:
            between(rows, machine)
    whole.start()
    rows.until_whole()
    assert all(rows.kept(machine) == (0, list(range(RECORDS))) for machine in rows.machines)
    assert not any(map(is_marked, rows.machines))


def test_also_where_what_is_gone_could_not_be_read_at_first(rows: IncompleteScene) -> None:
    whole, others = rows.one_stops_before()
    for machine in others:
        all_but_the_owner_is_gone(machine)
        machine.files.fail_next("read", f"*{TOPIC}/Partition-0/{PARTITION_FILE}")
        machine.start()
        rows.let_pass(8)
    whole.start()
    rows.until_whole()
    assert rows.kept(whole) == (0, list(range(RECORDS)))


@pytest.mark.parametrize("damage", [*HOLES, *OLD, *DAMAGES, last_are_gone])
def test_where_all_stopped_one_that_is_complete_leads(rows: IncompleteScene, damage: Damage) -> None:
    """All were killed, and are asked how far they are: the damaged one comes first, and ends where they do."""
    rows.written()
    victim = rows.leader()
    for machine in rows.machines:
        machine.stop()
    damage(victim)
    for machine in rows.machines:
        machine.files.unlink(machine.data / "clean-shutdown")
        machine.start()
    rows.until_whole()
    assert all(rows.kept(machine) == (0, list(range(RECORDS))) for machine in rows.machines)


def test_one_that_was_to_begin_anew_and_is_elected_first_keeps_what_it_has(
    rows: IncompleteScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leader sent it back; then everybody else is gone, and the topic goes on with what is left."""
    rows.set_topic("unclean.leader.election.enable", "true")
    rows.written()
    robbed = rows.followers()[0]
    robbed.stop()
    rows.let_pass(20)
    take(robbed, slice(1, None))
    honest, waiting, gate = following._may_cut, [], asyncio.Event()

    async def late(*asked: Any) -> Any:
        waiting.append(asked)
        await gate.wait()
        return await honest(*asked)

    monkeypatch.setattr(following, "_may_cut", late)
    robbed.start()
    while not waiting:
        rows.let_pass(1)
    left = rows.kept(robbed)
    assert left[1]
    for machine in rows.machines:
        if machine is not robbed:
            machine.kill()
    while rows._state(0).leader != rows.machines.index(robbed) + 1:
        rows.let_pass(1)
    gate.set()
    rows.let_pass(5)
    assert rows.kept(robbed) == left


def all_but_the_first_are_gone(machine: SimBroker) -> None:
    take(machine, slice(1, None))


@pytest.mark.parametrize("damage", [end_is_gone, all_but_the_first_are_gone])
@pytest.mark.parametrize("start", [1, 2])
def test_what_lies_behind_a_deletion_is_not_deleted_by_the_last_in_sync_that_lost_it(
    damage: Damage, start: int
) -> None:
    with SimLoop(2) as loop:
        scene = IncompleteScene(loop, synced=True)
        if damage is end_is_gone:
            scene.begin()
        else:
            scene.begin_with_small_segments()
        scene.set_topic("min.insync.replicas", "1")
        scene.written()
        assert delete(scene, start) == (ErrorCode.NONE, start)
        last = scene.stop_one_by_one_as_it_is()
        damage(last)
        for machine in (last, *scene.machines):
            if not machine.running:
                machine.start()
                scene.let_pass(4)
        scene.until_whole()
        for machine in scene.machines:
            kept_from, offsets = scene.kept(machine)
            assert kept_from == start, "what was deleted stays so, and nothing else goes"
            assert machine is last or [offset for offset in offsets if start <= offset < RECORDS] == list(
                range(start, RECORDS)
            )


def test_a_mark_outlives_the_next_start_and_goes_with_the_copy(rows: IncompleteScene) -> None:
    whole, others = rows.one_stops_before()
    for machine in others:
        directory_is_gone(machine)
    for machine in others:
        machine.start()
    rows.let_pass(8)
    assert all(map(is_marked, others))
    assert rows._state(0).leader == -1, "one that is not there may have everything"
    for machine in others:
        rows.restart(machine)
    rows.let_pass(8)
    assert all(map(is_marked, others))
    whole.start()
    rows.until_whole()
    assert not any(map(is_marked, rows.machines))


def test_where_all_replicas_lost_files_the_one_with_the_most_leads_and_is_the_log_from_then_on(
    rows: IncompleteScene,
) -> None:
    whole, others = rows.one_stops_before()
    for machine in others:
        directory_is_gone(machine)
    last_are_gone(whole)
    for machine in rows.machines:
        machine.start()
    rows.until_whole()
    assert rows.leader() is whole
    assert not is_marked(whole)
    assert all(rows.kept(machine)[1] == list(range(RECORDS - 2)) for machine in rows.machines)


def test_an_unclean_election_does_not_wait_and_takes_the_one_that_has_more(rows: IncompleteScene) -> None:
    whole, others = rows.one_stops_before()
    directory_is_gone(others[0])
    last_are_gone(others[1])
    for machine in others:
        machine.start()
    rows.let_pass(4)
    assert rows._state(0).leader == -1
    rows.set_topic_at(others[1], "unclean.leader.election.enable", "true")
    rows.let_pass(4)
    assert rows.leader() is others[1]
    whole.start()
    rows.until_whole()


# -- topics in the making ------------------------------------------------------------------------------------


def made_on(name: str, *brokers: int, least: str) -> CreateTopicsRequest:
    request = create_request({"min.insync.replicas": least}, name=name, replicas=-1)
    (topic,) = request.topics
    topic.num_partitions = -1
    topic.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=list(brokers))]
    return request


def test_a_topic_in_the_making_holds_up_no_other_partition() -> None:
    """`pair` is led by 1 alone, and 2 does not come back. 1 is killed before it has a log of another topic."""
    with SimLoop(2) as loop:
        scene = FilesScene(loop, synced=True)
        for machine in scene.machines:
            machine.start()
        loop.run_until(lambda: all(machine.ready for machine in scene.machines))
        one, two, three = scene.machines

        def state(topic: str) -> PartitionState | None:
            assert three.broker is not None
            found = three.broker.metadata.image.topics.get(topic)
            return None if found is None else found.partitions[0]

        scene.do(SimClient(one.name, PORT).call(ApiKey.CREATE_TOPICS, made_on("pair", 1, 2, least="1")))
        scene.let_pass(2)
        two.stop()
        scene.let_pass(20)
        creation = SimClient(three.name, PORT).call(ApiKey.CREATE_TOPICS, made_on("another", 1, 3, least="2"))
        loop.spawn("admin", creation)
        loop.run_until(lambda: one.broker is not None and "another" in one.broker.metadata.image.topics)
        one.kill()
        assert not one.files.exists(one.data / "topics" / "another" / "Partition-0" / PARTITION_FILE)
        one.start()
        scene.let_pass(20)
        for topic in ("pair", "another"):
            found = state(topic)
            assert found is not None
            assert found.leader in (1, 3)
