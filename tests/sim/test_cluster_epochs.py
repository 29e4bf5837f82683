"""Epochs whose first records are compacted away: every copy knows where they began, and gives up what they gave up."""

from collections.abc import Iterator

import pytest
from tests.sim.cluster_compacting import CLEANING, records_of_keys
from tests.sim.cluster_story import replica_of
from tests.sim.messages import produce_request
from tests.sim.test_cluster_compaction import CompactedScene

from penstock.records.builder import build_batch
from penstock.records.reader import Record
from penstock.replication import following
from penstock.replication.epoch_starts import EndOfEpoch, starts_within
from penstock.replication.fetcher import _ANSWER_SECONDS as ANSWER_SECONDS
from penstock.testing.sim_broker import PORT, SESSION_SECONDS, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey


class EpochScene(CompactedScene):
    def begin(self) -> None:
        super().begin()
        self.set_topic("unclean.leader.election.enable", "true")
        self.set_topic("min.insync.replicas", "1")
        # So that followers know that there are gaps, and take none for missing tombstones.
        for number in range(20):
            self.put(b"key", b"%d" % number)
            self.let_pass(0.1)
        assert all(replica_of(follower, 0).log.may_have_gaps for follower in self.followers())

    def kill(self, *machines: SimBroker) -> None:
        for machine in machines:
            machine.kill()
        self.let_pass(SESSION_SECONDS + 2)

    def start(self, *machines: SimBroker) -> None:
        for machine in machines:
            machine.start()
        self.let_pass(4)

    def until_in_sync(self, machine: SimBroker) -> None:
        broker = self.machines.index(machine) + 1
        self.loop.run_until(lambda: broker in self._state(0).isr)

    def starts(self, machine: SimBroker) -> list[tuple[int, int]]:
        return replica_of(machine, 0).log.epochs.entries()

    def put_alone(self, key: bytes) -> None:
        """At the leader, and nobody else: not committed, and so not acknowledged to who wants it to be."""
        for machine in self.followers():
            self.loop.network.stall(self.leader().name, machine.name)
        batch = bytes(build_batch([Record(offset=0, timestamp=1, key=key, value=b"value")]))
        request = produce_request(0, batch, acks=1)
        self.do(SimClient(self.leader().name, PORT).call(ApiKey.PRODUCE, request))

    def compact_from(self, offset: int) -> None:
        """Write until the leader has nothing left of what it wrote there."""
        for number in range(200):
            self.put(b"key", b"again %d" % number)
            self.let_pass(0.1)
            partition = replica_of(self.leader(), 0)
            kept = [at for records in records_of_keys(partition).values() for at, _ in records]
            if partition.log.end_offset > offset + 5 and not any(offset <= at < offset + 5 for at in kept):
                return
        raise AssertionError("nothing was compacted")


@pytest.fixture
def scene() -> Iterator[EpochScene]:
    with SimLoop(1) as loop:
        scene = EpochScene(loop, CLEANING, synced=False)
        scene.begin()
        yield scene


@pytest.mark.parametrize("clean", [False, True], ids=["unclean", "clean"])
@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("crashed", [False, True], ids=["", "crashed"])
def test_what_an_election_gave_up_stays_so_where_the_first_records_of_the_epoch_are_gone(
    scene: EpochScene, clean: bool, epochs: int, crashed: bool
) -> None:
    """Also where nothing is left of whole epochs, and where the copy is read anew after a crash."""
    newest, (leads, copies) = scene.leader(), scene.followers()
    given_up = replica_of(newest, 0).log.end_offset
    if clean:
        scene.put_alone(b"given up")
        scene.kill(newest, copies)
        scene.loop.network.heal_all()
    else:
        scene.kill(leads, copies)
        scene.put(b"given up", b"value")
        scene.kill(newest)
        scene.start(leads)
    assert scene.leader() is leads
    scene.compact_from(given_up)
    for _ in range(epochs - 1):
        scene.kill(leads)
        scene.start(leads)
        scene.compact_from(replica_of(leads, 0).log.end_offset)
    scene.start(copies)
    scene.until_in_sync(copies)
    if crashed:
        copies.kill()
        scene.start(copies)
        scene.until_in_sync(copies)
    assert len(scene.starts(leads)) == epochs + 1
    told = scene.starts(copies)
    scene.kill(leads)
    assert scene.leader() is copies
    scene.start(newest)
    assert b"given up" not in records_of_keys(replica_of(newest, 0))
    assert told == scene.starts(newest)[: len(told)]


def test_a_question_that_nobody_answers_does_not_hold_up_a_new_leader(
    scene: EpochScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    leads, (other, copies) = scene.leader(), scene.followers()
    scene.kill(copies)
    began = replica_of(leads, 0).log.end_offset
    scene.kill(leads)
    assert scene.leader() is other
    scene.start(leads)
    scene.until_in_sync(leads)
    scene.compact_from(began)
    asked: list[str] = []

    async def unheard(end_of: EndOfEpoch, gap: range, epoch: int, latest: int) -> list[tuple[int, int]]:
        asked.append(scene.leader().name)
        if len(asked) == 1:
            scene.loop.network.stall(scene.leader().name, copies.name)
        return await starts_within(end_of, gap, epoch, latest)

    monkeypatch.setattr(following, "starts_within", unheard)
    copies.start()
    scene.loop.run_until(lambda: bool(asked))
    asked_at = scene.loop.time()
    scene.let_pass(0.5)
    other.stop()
    scene.until_in_sync(copies)
    assert asked == [other.name, leads.name]
    assert scene.loop.time() - asked_at < ANSWER_SECONDS
