"""Compaction in a cluster: a deleted key stays deleted at every replica, however long that was away (ADR 14)."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sim.cluster_clients import create_topic
from tests.sim.cluster_compacting import CLEANING, COMPACTED, CompactingStory, records_of_keys
from tests.sim.cluster_planted import goes_wrong
from tests.sim.cluster_story import BROKERS, replica_of
from tests.sim.messages import TOPIC, produce_request
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.core.files import Files
from penstock.records.builder import build_batch
from penstock.records.reader import Record, read_all
from penstock.replication import following
from penstock.replication.leading import FetchVerdict, Leading
from penstock.replication.partition import Partition
from penstock.storage import recovery
from penstock.storage.compaction import checkpoint as cleaner_checkpoint
from penstock.storage.compaction.checkpoint import Cleaned, load_cleaned
from penstock.storage.log import Log
from penstock.storage.recovery import open_log
from penstock.testing.sim_broker import PORT, SESSION_SECONDS, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "300")) // 60, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


def run_story(seed: int) -> str:
    with SimLoop(seed) as loop:
        loop.executor.step_by_seed()
        CompactingStory(loop).tell()
        return loop.trace_hash


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_each_key_keeps_its_last_word_at_every_replica(seed: int) -> None:
    run_story(seed)


class CompactedScene(Scene):
    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        configs = {**COMPACTED, "internal.segment.bytes": "300"}
        self.do(create_topic(self.client("admin"), BROKERS, configs))
        self.until_whole()

    def put(self, key: bytes, value: bytes | None) -> None:
        batch = bytes(build_batch([Record(offset=0, timestamp=1, key=key, value=value)]))
        answer = self.do(SimClient(self.leader().name, PORT).call(ApiKey.PRODUCE, produce_request(0, batch)))
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    def delete_for_good(self, key: bytes) -> None:
        """Until nobody who is there remembers that the key ever was."""
        self.put(key, None)
        for number in range(200):
            self.put(b"filler-%d" % (number % 3), b"%d" % number)
            self.let_pass(0.1)
            live = [machine for machine in self.machines if machine.ready]
            if not any(key in records_of_keys(replica_of(machine, 0)) for machine in live):
                return
        raise AssertionError("its tombstone never went")


@pytest.fixture
def scene() -> Iterator[CompactedScene]:
    with SimLoop(1) as loop:
        scene = CompactedScene(loop, CLEANING, synced=False)
        scene.begin()
        yield scene


def test_a_replica_that_missed_a_tombstone_forgets_the_key_all_the_same(scene: CompactedScene) -> None:
    away = scene.followers()[0]
    scene.put(b"gone", b"secret")
    scene.let_pass(1)
    away.kill()
    scene.let_pass(SESSION_SECONDS + 1)
    scene.delete_for_good(b"gone")
    away.start()
    scene.until_whole()
    assert b"gone" not in records_of_keys(replica_of(away, 0))
    log = replica_of(away, 0).log
    assert (
        log.cleaned.tombstones >= replica_of(scene.leader(), 0).log.cleaned.tombstones
    )  # it tells the next one
    assert [name for name in log.files.list_dir(log.directory) if name.startswith("-")] == []


def test_a_replica_that_leads_before_it_was_copied_keeps_what_it_acknowledges(
    scene: CompactedScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began anew, and all others die: its topic allows that it leads, with nothing."""
    scene.set_topic("unclean.leader.election.enable", "true")
    scene.set_topic("min.insync.replicas", "1")
    away = scene.followers()[0]
    scene.put(b"gone", b"secret")
    scene.let_pass(1)
    away.kill()
    scene.let_pass(SESSION_SECONDS + 1)
    scene.delete_for_good(b"gone")
    monkeypatch.setattr(following, "append_replicated", lambda *_, **__: None)
    away.start()
    scene.loop.run_until(lambda: away.ready and 0 in partitions_of(away) and ends_anew(away))
    for machine in scene.machines:
        if machine is not away:
            machine.kill()
    scene.let_pass(SESSION_SECONDS + 3)
    assert scene.leader() is away
    for number in range(3):
        scene.put(b"%d" % number, b"value")
    kept = records_of_keys(replica_of(away, 0))
    away.kill()
    scene.let_pass(SESSION_SECONDS + 1)
    away.start()
    scene.let_pass(5)
    assert (len(kept), records_of_keys(replica_of(away, 0))) == (3, kept)


def partitions_of(machine: SimBroker) -> dict[int, Partition]:
    assert machine.broker is not None
    topic = machine.broker.table.by_name.get(TOPIC.encode())
    return topic.partitions if topic else {}


def ends_anew(machine: SimBroker) -> bool:
    """The value that it kept was its first record."""
    return replica_of(machine, 0).log.end_offset <= 0


def test_a_topic_that_compacts_no_more_keeps_what_lies_behind_its_gaps(scene: CompactedScene) -> None:
    """A follower took them over from its leader; its own crash is no reason to throw away what it acknowledged."""
    away = scene.followers()[0]
    scene.put(b"first", b"")
    scene.let_pass(1)
    away.kill()
    scene.let_pass(SESSION_SECONDS + 1)
    while has_no_gap(replica_of(scene.leader(), 0).log):
        scene.put(b"key", b"value")
        scene.let_pass(0.1)
    away.start()
    scene.until_whole()
    assert not has_no_gap(replica_of(away, 0).log)
    scene.set_topic("cleanup.policy", "delete")
    scene.let_pass(1)
    log = replica_of(away, 0).log
    expected, settings = offsets_of(log), log.settings
    away.kill()
    assert not settings.compacts
    again = open_log(away.files, log.directory, settings)
    assert (offsets_of(again.log), again.cut_bytes) == (expected, 0)


def offsets_of(log: Log) -> list[int]:
    return [
        record.offset
        for segment in log.segments
        for record in read_all(memoryview(segment.file.pread(segment.size, 0)))
    ]


def has_no_gap(log: Log) -> bool:
    return offsets_of(log) == list(range(log.end_offset))


def keeps_what_tombstones_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that missed tombstones goes on where it was."""
    monkeypatch.setattr(Leading, "verdict", lambda *_: FetchVerdict.GO_ON)


def cleans_from_another_logs_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """How far a log is clean is kept by the partition's number, for whatever log is there."""
    honest_open, honest_save = recovery._open, cleaner_checkpoint.save_cleaned

    def save(files: Files, directory: Path, cleaned: Cleaned) -> None:
        honest_save(files, directory, cleaned)
        files.write_atomically(_mark_of(directory), b"%d" % cleaned.offset)

    def opened(files: Files, directory: Path, *args: Any, **options: Any) -> recovery.Recovered:
        found = honest_open(files, directory, *args, **options)
        known = load_cleaned(files, directory, found.log.end_offset)
        if files.exists(_mark_of(directory)):
            known = known._replace(offset=int(files.read(_mark_of(directory))))
        found.log.cleaned = known
        return found

    monkeypatch.setattr(cleaner_checkpoint, "save_cleaned", save)
    monkeypatch.setattr(recovery, "_open", opened)
    monkeypatch.setattr(recovery, "_take_over", lambda log, known: None)
    monkeypatch.setattr(Cleaned, "cut", lambda cleaned, end_offset: cleaned)


def _mark_of(directory: Path) -> Path:
    return directory.parent.parent.parent / f"cleaned-{directory.parent.name}-{directory.name}"


# Found by seeds 1 and 0.
PLANTED = [keeps_what_tombstones_deleted, cleans_from_another_logs_mark]


@pytest.mark.soak
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_checkers_find_a_planted_bug(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(30))
