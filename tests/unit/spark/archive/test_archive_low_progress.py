"""A progress that is low for a missing file, of a log without leader epochs: it may have lost its end since.

The broker lowers the progress of such a log, and that is all there is to go by. It has no reason to where the progress
is lower already. So everything behind it is archived again, which brings back what the missing file had, too.
"""

import pytest
from tests.unit.spark.archive import test_archive_steps
from tests.unit.spark.archive.faulty_lake import Row, Steps
from tests.unit.spark.archive.test_archive_losses import LOSSY, archive, lose_first
from tests.unit.spark.archive.test_archive_steps import World

from penstock.spark.pipelines.archive import compaction, manifest, rounds
from penstock.spark.pipelines.archive.errors import CorruptFileError


@pytest.fixture(params=[1, 50], ids=["in a checkpoint", "in an entry"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    """Archived without leader epochs; the broker has everything still."""
    monkeypatch.setattr(compaction, "groups", lambda *_, **__: [])
    world = World(monkeypatch)
    monkeypatch.setattr(manifest, "CHECKPOINT_ENTRIES", request.param)
    world.broker.knows_epochs, world.broker.keeps_all = False, True
    world.run(Steps())
    assert world.broker.told[0] == (10, None)
    return world


def counting(world: World) -> list[Row]:
    """The rows that count, of the files that are there."""
    found = []
    for path, file in archive(world).files.items():
        rows = world.lake.rows(path) if path in world.lake.files else []
        found += [row for row in rows if row[1] < file.limits.get(row[0], row[1] + 1)]
    return sorted(found)


@pytest.mark.parametrize("is_back", [True, False])
def test_it_hides_no_log_that_lost_its_end(
    is_back: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(world.lake.files)
    path = lose_first(world)
    with pytest.raises(CorruptFileError):
        world.run(Steps())
    assert world.broker.told[0][0] == 0
    world.broker.lose_end(0, 8, 18, epoch=4)
    if is_back:
        world.lake.files[path] = before[path]
    monkeypatch.setattr(test_archive_steps, "SETTINGS", LOSSY)
    world.run(Steps())
    assert counting(world) == sorted(world.broker.rows)
    assert world.broker.told[0][0] == 18


def test_nor_does_one_that_the_same_run_has_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run has archived itself is believed to be only not told yet, until it tells less."""
    monkeypatch.setattr(manifest, "CHECKPOINT_ENTRIES", 1)
    world.broker.grow(0, 14, world.broker.leading[0])
    running = rounds.Rounds(
        None,  # type: ignore[arg-type]
        world.lake,
        world.broker,  # type: ignore[arg-type]
        LOSSY,
        still_owner=lambda: None,
        warn=lambda _: None,
    )
    assert running.run() is not None
    lose_first(world)
    running.tell()
    assert world.broker.told[0][0] == 0
    world.broker.lose_end(0, 8, 18, epoch=4)
    while running.run() is not None:
        running.tell()
    assert counting(world) == sorted(world.broker.rows)
    assert world.broker.told[0][0] == 18
