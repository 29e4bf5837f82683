"""Logs grow, lose their ends and get them back by elections, while runs of the archive fail in every way; seeded.

After each run that nothing disturbed, what counts in the lake is what the logs have, each record once.
"""

import random
from collections.abc import Callable, Sequence

import pytest
from tests.unit.spark.archive.faulty import FAULTS, Steps
from tests.unit.spark.archive.test_archive_steps import World

from penstock.core.errors import PenstockError
from penstock.spark.pipelines.archive import manifest, rounds, standing
from penstock.spark.pipelines.archive.entries import Mark

SEEDS = 40
MOVES = 12


class Story:
    def __init__(self, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.dice = random.Random(seed)
        self.world = World(patch)
        self.broker = self.world.broker
        self.epoch = 3
        self.away = [(at, self.broker.replica(at)) for at in range(2)]

    def run(self) -> None:
        moves = [self.grow, self.lose_end, self.come_back, self.archive, self.fail, self.disturb]
        for _ in range(MOVES):
            self.dice.choice(moves)()
        self.archive()

    def grow(self) -> None:
        at = self.dice.randrange(2)
        self.epoch += self.dice.randrange(2)
        self.broker.grow(at, self.broker.ends()[at] + self.dice.randrange(1, 12), self.epoch)

    def lose_end(self) -> None:
        at = self.dice.randrange(2)
        end = self.broker.ends()[at]
        self.away.append((at, self.broker.replica(at)))
        self.epoch += 1
        lost = self.dice.randrange(end + 1)
        self.broker.lose_end(at, lost, lost + self.dice.choice([0, 1, 5, 15]), self.epoch)

    def come_back(self) -> None:
        at, replica = self.dice.choice(self.away)
        self.away.append((at, self.broker.replica(at)))
        self.epoch += 1
        self.broker.elect(at, replica)
        if self.dice.random() < 0.5:
            self.broker.grow(at, self.broker.ends()[at] + self.dice.randrange(1, 12), self.epoch)

    def archive(self) -> None:
        self.world.run(Steps())
        self.world.check()

    def fail(self) -> None:
        self.world.run_and_fail(FAULTS[self.dice.choice(list(FAULTS))], self.dice.randrange(80))

    def disturb(self) -> None:
        """Something befalls a log while a round is under way."""
        moment = self.dice.choice(["planned", "read"])
        self.broker.meanwhile[moment] = self.dice.choice([self.grow, self.lose_end, self.come_back])
        self.world.run(Steps())
        self.broker.meanwhile.clear()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_lake_has_what_the_logs_have(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Story(seed, monkeypatch).run()


# -- planted: the story must find them --------------------------------------------------------------------------


def first_found() -> int | None:
    """The first seed that goes wrong."""
    for seed in range(SEEDS):
        with pytest.MonkeyPatch.context() as patch:
            try:
                Story(seed, patch).run()
            except (AssertionError, PenstockError):
                return seed
    return None


def asked_once(marks: Sequence[Mark], end_of: Callable[[int], tuple[int, int]]) -> int | None:
    """As if everything up to the epoch that the log answers with were in common."""
    epoch, end = end_of(marks[-1][0])
    common = max((mark_end for mark_epoch, mark_end in marks if mark_epoch <= epoch), default=0)
    where = min(common, end)
    return where if 0 <= where < marks[-1][1] else None


def test_it_finds_a_log_that_is_asked_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "parting", asked_once)
    assert first_found() is not None


def test_it_finds_a_log_that_is_not_looked_at_again_before_the_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds.Rounds, "_check_epochs", lambda *_: None)
    assert first_found() is not None


def test_it_finds_a_log_that_is_never_gone_back_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "standing", lambda *_: standing.Standing())
    assert first_found() is not None


def test_it_finds_files_of_a_lost_log_that_count_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest.ArchivedFile, "below", lambda file, *_: file)
    assert first_found() is not None


def test_it_finds_lost_epochs_that_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    part = manifest.TopicArchive.part

    def parted(archive: manifest.TopicArchive, partition: int, offset: int) -> None:
        marks = list(archive.marks.get(partition, []))
        part(archive, partition, offset)
        archive.marks[partition] = marks

    monkeypatch.setattr(manifest.TopicArchive, "part", parted)
    assert first_found() is not None
