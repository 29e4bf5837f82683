"""Files of the lake go and come back, by chance, while runs of the archive fail and logs grow; seeded.

Whatever the broker deletes while a run goes on is in a file that is there, and counts; no row counts twice.
"""

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.unit.spark.archive import test_archive_steps
from tests.unit.spark.archive.faulty import TOPIC, Broker
from tests.unit.spark.archive.faulty_lake import FAULTS, Row, Steps
from tests.unit.spark.archive.test_archive_steps import World

from penstock.client.raw import Heard, TopicInfo
from penstock.core.errors import PenstockError
from penstock.services.maintenance.archive_progress import vouched
from penstock.spark.pipelines.archive import losses, manifest, presence, rounds, standing, survey
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.archive.planning import Bounds

SEEDS = 300
MOVES = 12


class Story:
    def __init__(self, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.dice = random.Random(seed)
        self.world = World(patch)
        self.broker, self.lake = self.world.broker, self.world.lake
        self.broker.knows_epochs = self.dice.random() < 0.7
        self.away: dict[str, bytes] = {}
        lossy = self.dice.random() < 0.7
        settings = rounds.Settings(bounds=Bounds(rows_max=8), fail_on_data_loss=not lossy)
        patch.setattr(test_archive_steps, "SETTINGS", settings)
        patch.setattr(manifest, "CHECKPOINT_ENTRIES", self.dice.choice([1, 3, 1000]))
        patch.setattr(Broker, "_retain", lambda _, at: self.retain(at))

    def run(self) -> None:
        moves = [self.grow, self.archive, self.archive, self.lose, self.lose, self.bring_back]
        moves += [self.change_leader, self.mislead, self.archive_elsewhere]
        # Without epochs nobody can tell what a log lost between a commit and the first word of it. Logs with epochs
        # lose their ends in another story.
        moves += [self.fail] if self.broker.knows_epochs else [self.lose_end]
        for _ in range(MOVES):
            self.dice.choice(moves)()
            self.lake.steps = Steps()
            rows = self.counting()
            assert len(rows) == len(set(rows))

    def retain(self, at: int) -> None:
        """Some of what may go: the rest is too young."""
        log = self.broker.log(at)
        start, end = log.start_offset, max(log.start_offset, vouched(log, *self.broker.told[at]))
        now = self.dice.choice([start, end, self.dice.randint(start, end)])
        steps, self.lake.steps = self.lake.steps, Steps()
        kept = set(self.counting())
        self.lake.steps = steps
        assert {row for row in self.broker.rows if row[0] == at and start <= row[1] < now} <= kept
        self.broker.starts[at] = now

    def counting(self) -> list[Row]:
        archive = Manifest.load(self.lake).topic(TOPIC)
        found = []
        for path, file in archive.files.items() if archive else ():
            where = path if path in self.lake.files else file.staged
            rows = self.lake.rows(where) if where in self.lake.files else []
            found += [row for row in rows if row[1] < file.limits.get(row[0], row[1] + 1)]
        return found

    def grow(self) -> None:
        at = self.dice.randrange(2)
        end = self.broker.ends()[at] + self.dice.randrange(1, 9)
        self.broker.grow(at, end, self.broker.leading[at])

    def lose_end(self) -> None:
        at = self.dice.randrange(2)
        if at in self.broker.told:
            end = self.dice.randint(self.broker.starts.get(at, 0), self.broker.ends()[at])
            regrown = end + self.dice.randrange(9)
            with pytest.MonkeyPatch.context() as patch:
                # Until a run has looked, retention goes by what it was told.
                patch.setattr(Broker, "_retain", lambda *_: None)
                self.broker.lose_end(at, end, regrown, self.broker.leading[at] + 1)

    def archive(self) -> None:
        with suppress(PenstockError):
            self.world.run(Steps())
            if self.broker.knows_epochs:
                # Logs lose nothing here, so nothing is archived again.
                there = sorted(path for path in self.lake.files if path.startswith("topic="))
                rows = [row for path in there for row in self.lake.rows(path)]
                assert len(rows) == len(set(rows))

    def mislead(self) -> None:
        """The first broker that a run asks was cut off before the topic was made."""
        answers: list[tuple[dict[str, TopicInfo], list[str]]] = [({}, [TOPIC])]
        find = self.broker.find
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.broker, "find", lambda: answers.pop() if answers else find())
            self.archive()

    def archive_elsewhere(self) -> None:
        """A run against another cluster, where nobody has heard of the topic."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.broker, "is_there", False)
            patch.setattr(self.broker, "cluster", "elsewhere")
            self.archive()

    def fail(self) -> None:
        fault = FAULTS[self.dice.choice(["killed", "power cut", "error", "Ctrl-C"])]
        self.world.run_and_fail(fault, self.dice.randrange(200))

    def lose(self) -> None:
        if paths := sorted(path for path in self.lake.files if path.startswith("topic=")):
            path = self.dice.choice(paths)
            self.away[path] = self.lake.files.pop(path)

    def bring_back(self) -> None:
        if self.away:
            path = self.dice.choice(sorted(self.away))
            self.lake.files[path] = self.away.pop(path)
            self.lake.synced.add(path)

    def change_leader(self) -> None:
        self.broker.unled = set() if self.broker.unled else {self.dice.randrange(2)}


def harmful(seeds: int = SEEDS) -> Iterator[str]:
    for seed in range(seeds):
        with pytest.MonkeyPatch.context() as patch:
            try:
                Story(seed, patch).run()
            except AssertionError as error:
                yield f"seed {seed}: {error}".splitlines()[0]


def test_nothing_is_deleted_that_is_nowhere_else() -> None:
    assert list(harmful()) == []


def test_it_finds_files_that_are_not_looked_for_behind_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence.Presence, "look", lambda *_: None)
    assert any(harmful())


def test_it_finds_one_broker_that_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broker, "hear_all", lambda *_: Heard({}, by_all=True, cluster="here"))
    assert any(harmful())


def test_it_finds_another_cluster_that_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "_is_of", lambda *_: True)
    assert any(harmful())


def test_it_finds_a_low_progress_that_nobody_goes_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        survey,
        "standing",
        lambda source, logs, held, _: standing.standing(source, logs, held, own=held),
    )
    assert any(harmful())
