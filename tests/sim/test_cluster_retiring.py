"""A partition is retired while everything happens to its brokers that can: nothing is lost, and nothing comes twice."""

import asyncio
import os

import pytest
from tests.sim.cluster_planted import goes_wrong
from tests.sim.cluster_retiring import RETIRED, RetiringStory
from tests.sim.cluster_story import watched
from tests.sim.messages import PRODUCERS
from tests.sim.retiring_planted import PLANTED, Plant, goes_by_what_it_remembers

from penstock.records.relay import RelayPlace
from penstock.replication.retirement import retirement_of
from penstock.services.relay.sender import RelaySender
from penstock.testing.sim_loop import SimLoop

# A fifth of what the cluster itself gets.
SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "100")) // 5
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


def run_story(seed: int) -> RetiringStory:
    with SimLoop(seed) as loop:
        story = RetiringStory(loop)
        with watched(story.history):
            story.begin()
            faults = story.rng.randint(3, 7)
            retired_at = story.rng.randrange(faults)
            for number in range(faults):
                story.let_pass(story.rng.uniform(0.05, 1.0))
                if number == retired_at:
                    story.begin_to_retire()
                    story.let_pass(story.rng.choice([0.0, 0.05, 0.5]))
                story.misfortune()
            story.heal()
            story.check_progress()
            story.check_data()
        return story


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_nothing_is_lost_or_comes_twice_whoever_dies(seed: int) -> None:
    run_story(seed)


def test_a_writer_finds_the_next_leader_of_a_partition_that_clients_are_not_told_of() -> None:
    often = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "0"}
    with SimLoop(1) as loop:
        story = RetiringStory(loop, often)
        story.begin()
        story.let_pass(1)
        for reader in ("reader-0", "reader-1"):  # they would miss what expires
            loop.crash(reader)
        story.begin_to_retire()
        loop.run_until(story.is_retired)
        story.configure({"retention.ms": "1"})
        loop.run_until(story.is_hidden)
        leader = story.leader(RETIRED)
        assert leader is not None
        leader.kill()
        before = story.written_to(RETIRED)
        loop.run_until(lambda: story.written_to(RETIRED) > before)
        loop.run_until(story.is_hidden)


def test_followers_hear_that_a_retired_partition_is_still_written_to() -> None:
    """One of them may lead later, and must not say that nobody wrote for long."""
    with SimLoop(2) as loop:
        story = RetiringStory(loop)
        story.begin()
        story.configure({"penstock.retire.grace.ms": "1000"})
        story.begin_to_retire()
        loop.run_until(story.is_retired)
        retired_ms = story.retirement.written_ms
        story.let_pass(3)
        noted = story.retirement.written_ms
        assert noted > retired_ms
        replicas = [story.replica(machine, RETIRED) for machine in story.machines]
        assert all(replica is not None and retirement_of(replica).written_ms >= noted for replica in replicas)


def test_the_checkers_find_a_source_that_does_not_ask_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_by_what_it_remembers(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(10))


@pytest.mark.soak
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_checkers_find_a_planted_bug(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(300))


def test_an_election_does_not_begin_the_grace_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader has to ask the target how much is moved; until it knows, it does not say that somebody wrote."""
    honest = RelaySender.places

    async def slowly(route: RelaySender) -> tuple[RelayPlace, ...]:
        await asyncio.sleep(3)
        return await honest(route)

    monkeypatch.setattr(RelaySender, "places", slowly)
    with SimLoop(1) as loop:
        story = RetiringStory(loop, {"penstock.retire.check.interval.ms": "1000"}, synced=False)
        story.begin()
        story.configure({"penstock.retire.grace.ms": "100000"})
        story.begin_to_retire()
        loop.run_until(story.is_retired)
        story.let_pass(1)
        for number in range(PRODUCERS):
            loop.crash(f"producer-{number}")
        story.until_moved()
        story.let_pass(15)
        noted = story.retirement.written_ms
        leader = story.leader(RETIRED)
        assert leader is not None
        leader.stop()
        story.let_pass(10)
        assert story.leader(RETIRED) not in (None, leader)
        assert story.retirement.written_ms == noted
