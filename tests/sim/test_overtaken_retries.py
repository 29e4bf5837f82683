"""Replicas that retention overtook begin anew where their leader's log begins, and are elected: they know repeats, too.

A producer whose answers were lost sends its last batches again, to whoever leads by then. In a retired partition what
was moved is deleted within seconds; in any other one where retention is short.
"""

import asyncio
import os
from random import Random

import pytest
from tests.sim.cluster_clients import Violation, send_until_acknowledged
from tests.sim.cluster_planted import goes_wrong
from tests.sim.cluster_retiring import INTO, RETIRED
from tests.sim.cluster_story import Story, bytes_below
from tests.sim.messages import batch_of, idempotent, numbered
from tests.sim.test_relay_commits import FAR, SETTINGS, CommitStory

from penstock.records.reader import read_all
from penstock.storage.producers import BATCHES_KEPT, ProducerState
from penstock.testing.sim_loop import SimLoop

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "150")) // 25, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
WRITERS = (71, 72)


class RetriesStory(CommitStory):
    replicas = ((4, 5, 6), (1, 2, 3))

    def __init__(self, loop: SimLoop, *, retired: bool) -> None:
        Story.__init__(self, loop, SETTINGS, brokers=6)
        self.index = RETIRED if retired else INTO
        self.repeats = 0

    @property
    def configs(self) -> dict[str, str]:
        short = {} if self.index == RETIRED else {"retention.ms": "1"}
        after = "synced" if self.is_synced else "auto"
        return {**super().configs, **short, "penstock.ack.after": after}

    def begin_with_retries(self) -> None:
        if self.index == RETIRED:
            self.begin()
            self.loop.crash("producer")
        else:
            for machine in self.machines:
                machine.start()
            self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
            self.loop.run_until_complete(self.loop.spawn("admin", self._create()))
            self.let_pass(1)
        for number in WRITERS:
            self.spawn(f"writer-{number}", self._write(number, self.loop.random(f"writer-{number}")))

    async def _write(self, number: int, rng: Random) -> None:
        """Now and then it sends its last batches once more: they are where they were."""
        client = self.client(f"writer-{number}")
        sent: list[tuple[bytes, int]] = []
        sequence = 0
        while True:
            if sent and rng.random() < 0.5:
                for batch, offset in sent[-rng.randint(1, BATCHES_KEPT) :]:
                    again = await self._send(client, batch)
                    self.repeats += 1
                    if again != offset:
                        raise Violation(f"a repeat of {offset} was stored at {again}")
            values = numbered(number, sequence, rng.randint(1, 3))
            batch = batch_of(values, idempotent(number, sequence))
            offset = await self._send(client, batch)
            sent.append((batch, offset))
            sequence += len(values)
            # Others may write so much meanwhile that nothing of this one is left.
            await asyncio.sleep(rng.choice([0.02, 0.1, 0.5, 3.0]))

    async def _send(self, client: object, batch: bytes) -> int:
        state = self._state(self.index)
        if state.leader > 0:
            client.knows(self.index, self.machines[state.leader - 1].name)  # type: ignore[attr-defined]
        return await send_until_acknowledged(client, self.index, batch)  # type: ignore[arg-type]

    def overtake(self) -> None:
        """One is away until what it has is gone at its leader; then another one, so that it may lead."""
        rng = self.rng
        machines = [self.machines[number - 1] for number in self.replicas[self.index]]
        away = rng.choice(machines)
        away.power_cut() if rng.random() < 0.3 else away.kill()
        self.let_pass(rng.uniform(1, 4))
        away.start()
        if rng.random() < 0.3:  # also while it begins anew
            self.let_pass(rng.uniform(0, 0.5))
            away.power_cut()
            away.start()
        self.until_whole()
        leader = self.leader(self.index)
        if leader is not None and leader is not away:
            leader.kill()
            self.let_pass(rng.uniform(0.5, 2))
            leader.start()
            self.until_whole()

    def until_whole(self) -> None:
        for _ in range(300):
            self.let_pass(0.1)
            if self._is_whole():
                return
        raise Violation(f"not in sync: {list(self.states())}")

    def check(self) -> None:
        for number in WRITERS:
            self.loop.crash(f"writer-{number}")
        assert self.repeats, "nothing was repeated"
        leader = self.leader(self.index)
        assert leader is not None
        partition = self.replica(leader, self.index)
        assert partition is not None
        if not partition.log.start_offset:
            raise Violation("nothing was ever deleted")
        if self.index == RETIRED:
            self.until_moved()
            target = self.leader(INTO)
            assert target is not None
            moved = self.replica(target, INTO)
            assert moved is not None
            values = [record.value for record in read_all(memoryview(bytes_below(moved, FAR)))]
            if len(set(values)) != len(values):
                raise Violation("something is there twice")


def run_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        story = RetriesStory(loop, retired=seed % 2 == 0)
        story.begin_with_retries()
        for _ in range(story.rng.randint(2, 4)):
            story.overtake()
        story.check()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_who_was_overtaken_and_leads_knows_what_it_never_had(seed: int) -> None:
    run_story(seed)


@pytest.mark.parametrize("first", [0, 1], ids=["retired", "ordinary"])
def test_the_checkers_find_replicas_that_begin_anew_and_know_nobody(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProducerState, "copy_below", lambda *given: ([], -1))
    assert any(goes_wrong(run_story, seed) for seed in range(first, first + 10, 2))
