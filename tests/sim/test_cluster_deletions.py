"""DeleteRecords in a cluster: what was answered stays deleted, whoever leads next and however it got there."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.sim.cluster_deleting import LEADERS_ONLY, DeletingStory, delete_request
from tests.sim.cluster_planted import goes_wrong
from tests.sim.cluster_story import replica_of
from tests.sim.messages import fetch_request, records_of
from tests.sim.test_cluster_scenes import Scene, send

from penstock.core.error_codes import ErrorCode
from penstock.core.jobs import Jobs
from penstock.replication.following import Follower
from penstock.replication.leading import Leading
from penstock.replication.partition import Partition
from penstock.testing.sim_broker import PORT, SESSION_SECONDS
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "300")) // 20, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


def run_story(seed: int) -> str:
    with SimLoop(seed) as loop:
        story = DeletingStory(loop)
        story.tell()
        assert story.deletions.peeks, "nobody looked: the story tells nothing"
        return loop.trace_hash


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_what_was_deleted_never_comes_back(seed: int) -> None:
    run_story(seed)


def delete(scene: Scene, offset: int, timeout_ms: int = 3000) -> tuple[ErrorCode, int]:
    request = delete_request(0, offset, timeout_ms)
    answered = scene.do(SimClient(scene.leader().name, PORT).call(ApiKey.DELETE_RECORDS, request))
    answer = answered.topics[0].partitions[0]
    return ErrorCode(answer.error_code), answer.low_watermark


def read(scene: Scene, offset: int) -> tuple[ErrorCode, int]:
    """What whoever leads says at that offset, and how many records it shows."""
    request = fetch_request(0, offset, max_wait_ms=0)
    answered = scene.do(SimClient(scene.leader().name, PORT).call(ApiKey.FETCH, request, LEADERS_ONLY))
    answer = answered.responses[0].partitions[0]
    return ErrorCode(answer.error_code), len(records_of(answer, offset))


GONE = (ErrorCode.OFFSET_OUT_OF_RANGE, 0)


@pytest.fixture
def scene() -> object:
    with SimLoop(3) as loop:
        scene = Scene(loop, synced=False)
        scene.begin()
        for _ in range(5):
            assert scene.produce(-1) is ErrorCode.NONE
        yield scene


def test_a_deletion_outlives_the_leader_that_answered_it(scene: Scene) -> None:
    assert delete(scene, 4) == (ErrorCode.NONE, 4)
    scene.leader().kill()
    scene.let_pass(SESSION_SECONDS + 1)
    assert (read(scene, 0), read(scene, 4)) == (GONE, (ErrorCode.NONE, 1))


def test_a_follower_in_sync_that_cannot_hear_of_it_is_waited_for(scene: Scene) -> None:
    broker, _ = scene.followers()
    scene.loop.network.stall(scene.leader().name, broker.name)
    assert delete(scene, 4, 300) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    scene.loop.network.heal_all()
    assert delete(scene, 4) == (ErrorCode.NONE, 4)


def test_one_that_is_away_is_not_waited_for_and_deletes_before_it_is_in_sync(scene: Scene) -> None:
    away, leader = scene.followers()[0], scene.leader()
    away.kill()
    scene.let_pass(SESSION_SECONDS + 1)
    assert delete(scene, 4) == (ErrorCode.NONE, 4)
    away.start()
    scene.until_whole()
    for machine in scene.followers():
        if machine is not away:
            machine.kill()
    leader.kill()
    scene.let_pass(SESSION_SECONDS + 1)
    assert scene.leader() is away
    assert read(scene, 3) == GONE


def test_a_replica_that_begins_within_a_batch_takes_it_whole(scene: Scene) -> None:
    """Deletions know no batches: a log may begin in the middle of one."""
    away = scene.followers()[0]
    away.kill()
    scene.let_pass(SESSION_SECONDS + 1)
    assert scene.do(send(scene.leader().name, -1, 500, records=5)).error_code == ErrorCode.NONE
    assert delete(scene, 7) == (ErrorCode.NONE, 7)
    away.start()
    scene.until_whole()
    log = replica_of(away, 0).log
    assert (log.start_offset, log.end_offset, log.segments[0].base_offset) == (7, 10, 5)


class LateJobs:
    """Threads of a slow disk, as DeleteRecords sees them."""

    def __init__(self, jobs: Jobs, seconds: float) -> None:
        self._jobs = jobs
        self._seconds = seconds

    async def run(self, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(self._seconds)
        return await self._jobs.run(*args, **kwargs)


def test_who_leads_no_more_when_its_disk_is_done_promises_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = scene.leader()
    assert old.broker is not None
    deletions = old.broker.services.deletions
    monkeypatch.setattr(deletions, "_jobs", LateJobs(deletions._jobs, 4))
    asked = SimClient(old.name, PORT).call(ApiKey.DELETE_RECORDS, delete_request(0, 4, 10_000))
    asking = scene.loop.spawn("admin", asked)
    scene.let_pass(0.001)
    for machine in scene.followers():
        scene.loop.network.stall(old.name, machine.name)
    old.cut_off()
    scene.let_pass(SESSION_SECONDS + 0.5)
    old.reach_store()
    scene.loop.network.heal_all()
    answer = scene.loop.run_until_complete(asking).topics[0].partitions[0]
    assert scene.leader() is not old
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion is answered before any follower knows of it."""
    monkeypatch.setattr(Leading, "lowest_start", lambda leading, own_start: own_start)


def joins_with_what_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower is let in that has not heard of a deletion yet."""
    honest = Leading.may_join
    monkeypatch.setattr(
        Leading,
        "may_join",
        lambda leading, replica, committed, start: honest(leading, replica, committed, -1),
    )


def deletes_in_memory_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower says that it has deleted what a power cut brings back."""

    async def hasty(follower: Follower, partition: Partition, offset: int) -> None:
        log = partition.log
        if log.start_offset < offset <= log.end_offset:
            log.advance_start(offset)

    monkeypatch.setattr(Follower, "_advance_start", hasty)


@pytest.mark.soak
@pytest.mark.parametrize(
    "plant",
    [answered_at_once, joins_with_what_was_deleted, deletes_in_memory_only],  # found by seeds 3, 0 and 14
    ids=lambda plant: plant.__name__,
)
def test_the_checkers_find_a_planted_bug(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(60))
