"""A file of the lake is gone for good: retention and checkpoints wait for it while the broker has its records."""

import uuid
from contextlib import suppress

import pytest
from tests.unit.spark.archive import test_archive_steps
from tests.unit.spark.archive.faulty import TOPIC
from tests.unit.spark.archive.faulty_lake import Steps
from tests.unit.spark.archive.test_archive_steps import World

from penstock.client.raw import TopicInfo
from penstock.core.errors import PenstockError
from penstock.spark.pipelines.archive import compaction, manifest, rounds
from penstock.spark.pipelines.archive.entries import ArchivedFile
from penstock.spark.pipelines.archive.errors import CorruptFileError
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.archive.planning import Bounds
from penstock.spark.pipelines.archive.topics import TopicArchive

LOSSY = rounds.Settings(bounds=Bounds(rows_max=8), fail_on_data_loss=False)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Archived in files of a few rows each, which the broker has deleted; entries tell of all of them."""
    monkeypatch.setattr(compaction, "groups", lambda *_, **__: [])
    world = World(monkeypatch)
    monkeypatch.setattr(manifest, "CHECKPOINT_ENTRIES", 50)
    world.run(Steps())
    assert world.broker.starts == {0: 10, 1: 10}
    return world


@pytest.fixture
def young(monkeypatch: pytest.MonkeyPatch) -> World:
    """The same, but the broker has everything still, and every entry has a checkpoint."""
    monkeypatch.setattr(compaction, "groups", lambda *_, **__: [])
    world = World(monkeypatch)
    monkeypatch.setattr(manifest, "CHECKPOINT_ENTRIES", 1)
    world.broker.keeps_all = True
    world.run(Steps())
    assert {at: offset for at, (offset, _) in world.broker.told.items()} == {0: 10, 1: 10}
    assert Manifest.load(world.lake).checkpoint
    return world


def lose_first(world: World) -> str:
    """Offsets 0 to 3 of partition 0."""
    path = min(path for path in world.lake.files if path.startswith("topic="))
    assert archive(world).files[path].offsets == {0: (0, 3)}
    del world.lake.files[path]
    return path


def archive(world: World) -> TopicArchive:
    found = Manifest.load(world.lake).topic(TOPIC)
    assert found is not None
    return found


def run_without_it(world: World, patch: pytest.MonkeyPatch, grown: int = 20) -> None:
    world.broker.grow(0, grown, world.broker.leading[0])
    patch.setattr(test_archive_steps, "SETTINGS", LOSSY)
    world.run(Steps())


def test_what_nobody_has_any_more_is_noted_as_lost_and_all_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lose_first(world)
    with pytest.raises(CorruptFileError, match=path):
        world.run(Steps())
    run_without_it(world, monkeypatch)
    assert world.broker.told[0][0] == 20
    assert archive(world).lost == {0: [(0, 4)]}
    assert archive(world).ranges[0] == [(4, 20)]
    assert path not in archive(world).files
    # Once is enough, also for whoever takes nothing as lost.
    monkeypatch.setattr(test_archive_steps, "SETTINGS", rounds.Settings())
    monkeypatch.setattr(manifest, "CHECKPOINT_ENTRIES", 1)
    world.run(Steps())
    state = Manifest.load(world.lake)
    assert state.checkpoint == state.number
    assert archive(world).lost == {0: [(0, 4)]}


def test_one_that_is_brought_back_later_is_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lose_first(world)
    run_without_it(world, monkeypatch)
    world.lake.files[path] = b"[]"
    run_without_it(world, monkeypatch, 30)
    assert path in world.lake.files


@pytest.mark.parametrize("start", [0, 3])
def test_what_the_broker_has_is_kept_there(world: World, monkeypatch: pytest.MonkeyPatch, start: int) -> None:
    path = lose_first(world)
    world.broker.starts[0] = start
    run_without_it(world, monkeypatch)
    assert world.broker.told[0][0] == 0
    assert path in archive(world).files
    assert not archive(world).lost
    monkeypatch.setattr(manifest, "CHECKPOINT_ENTRIES", 1)
    run_without_it(world, monkeypatch, 30)
    assert not Manifest.load(world.lake).checkpoint


def test_of_a_partition_without_a_leader_nobody_knows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lose_first(world)
    world.broker.unled.add(0)
    run_without_it(world, monkeypatch)
    assert path in archive(world).files


@pytest.mark.parametrize("says", ["there is no such topic", "there is the one before"])
def test_one_broker_that_was_cut_off_is_not_believed(
    says: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not heard of the topic, or not that it was made anew; the others lead it, and have all records."""
    world.broker.starts = {0: 0, 1: 0}
    path = lose_first(world)
    before = TopicInfo(TOPIC, uuid.uuid4(), (0, 1), False)
    answers = [({}, [TOPIC]) if says == "there is no such topic" else ({TOPIC: before}, [])]
    find = world.broker.find
    monkeypatch.setattr(world.broker, "find", lambda: answers.pop() if answers else find())
    run_without_it(world, monkeypatch)
    assert path in archive(world).files
    assert world.broker.told[0][0] == 0


@pytest.mark.parametrize("cut_off", [True, False])
def test_a_topic_that_no_broker_has(cut_off: bool, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gone with its records, once all have said so."""
    path = lose_first(world)
    world.broker.is_there, world.broker.is_cut_off = False, cut_off
    run_without_it(world, monkeypatch)
    assert (path in archive(world).files) == cut_off


@pytest.mark.parametrize(("noted", "asked"), [("here", "elsewhere"), ("", "here"), ("", ""), ("here", "")])
def test_a_topic_that_another_cluster_may_have(
    noted: str, asked: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker of this one knows it, and it is not known to be of this one: nothing is given up."""
    path = lose_first(world)
    world.broker.is_there, world.broker.cluster = False, asked
    for at in [at for at in world.lake.files if at.startswith(manifest.FOLDER)]:
        world.lake.files[at] = world.lake.files[at].replace(
            b'"cluster": "here"', f'"cluster": "{noted}"'.encode()
        )
    run_without_it(world, monkeypatch)
    assert path in archive(world).files
    assert not archive(world).lost


def test_a_checkpoint_knows_the_cluster(young: World) -> None:
    state = Manifest.load(young.lake)
    assert not state.entries
    assert archive(young).cluster == "here"


def test_a_partition_that_left_its_topic_holds_nothing_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was retired and removed: nobody has its records any more."""
    path = lose_first(world)
    monkeypatch.setattr(world.broker, "everywhere", lambda: TopicInfo(TOPIC, None, (1,), False))
    monkeypatch.setattr(test_archive_steps, "SETTINGS", LOSSY)
    monkeypatch.setattr(manifest, "CHECKPOINT_ENTRIES", 1)
    world.run(Steps())
    assert path not in archive(world).files
    assert Manifest.load(world.lake).checkpoint


def in_turns() -> TopicArchive:
    """Two hours have the offsets of a partition in turns: producers' clocks differ."""
    made = TopicArchive("t", "-", since=1)
    made.line(0).take((0, 10))
    for path, offsets in (("topic=t/hour=10/a", (0, 8)), ("topic=t/hour=11/b", (1, 9))):
        made.files[path] = ArchivedFile(path, "t", "-", 5, 100, {0: offsets})
    return made


def test_offsets_that_other_files_may_have_are_not_noted_as_lost() -> None:
    made = in_turns()
    made.give_up(["topic=t/hour=10/a"])
    assert (made.lost, made.ranges) == ({0: [(0, 1)]}, {0: [(1, 10)]})
    assert made.lost_offsets == 5
    assert TopicArchive.from_json(made.as_json()) == made


def test_files_that_are_lost_together_leave_nothing_to_each_other() -> None:
    made = in_turns()
    made.give_up(list(made.files))
    assert (made.lost, made.ranges, made.lost_offsets) == ({0: [(0, 10)]}, {}, 10)


def test_it_may_fail_at_any_step(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    monkeypatch.setattr(manifest, "CHECKPOINT_ENTRIES", 2)
    lose_first(world)
    monkeypatch.setattr(test_archive_steps, "SETTINGS", LOSSY)
    files, synced = dict(world.lake.files), set(world.lake.synced)
    world.run(steps := Steps())
    for at in range(len(steps.names)):
        world.lake.files, world.lake.synced = dict(files), set(synced)
        world.run_and_fail(test_archive_steps.FAULTS["power cut"], at)
        with suppress(PenstockError):
            world.run(Steps())
        world.lake.steps = Steps()
        assert archive(world).lost == {0: [(0, 4)]}, steps.names[at]
        assert archive(world).next_offsets == {0: 10, 1: 10}


def test_a_log_that_goes_back_to_a_branch_has_lost_it_there_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = world.broker.replica(0)
    world.broker.lose_end(0, 7, 12, epoch=4)
    world.run(Steps())
    world.broker.starts[0] = 12
    lose_first(world)
    run_without_it(world, monkeypatch)
    assert archive(world).lost == {0: [(0, 4)]}
    world.broker.elect(0, before, 5)
    world.run(Steps())
    assert archive(world).lost == {0: [(0, 4)]}


def test_what_a_lost_file_was_made_of_is_not_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction put it in the place of others, which are in the lake still."""
    path = "topic=orders/date=2026-11-16/hour=10/merged.parquet"
    state = Manifest.load(world.lake)
    old = sorted(at for at in state.files if "hour=10" in at)
    merged = manifest.replace(state.files[old[0]], path=path, staged=None, offsets={0: (0, 9)})
    state.commit(manifest.Entry(state.number + 1, "compaction", "made", "", (), (merged,), tuple(old)))
    run_without_it(world, monkeypatch)
    assert path in archive(world).files
    assert set(old) <= world.lake.files.keys()


def test_a_file_none_of_whose_rows_count_holds_nothing_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.broker.lose_end(0, 0, 12, epoch=4)
    world.run(Steps())
    path = min(path for path in world.lake.files if path.startswith("topic="))
    assert archive(world).files[path].offsets == {}
    del world.lake.files[path]
    monkeypatch.setattr(manifest, "CHECKPOINT_ENTRIES", 1)
    run_without_it(world, monkeypatch)
    assert world.broker.told[0][0] == 20
    assert Manifest.load(world.lake).checkpoint


@pytest.mark.parametrize("settings", [LOSSY, rounds.Settings()], ids=["lossy", "default"])
def test_retention_keeps_what_was_in_a_file_that_a_checkpoint_has(
    settings: rounds.Settings, young: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells of it but the file's absence; retention was told long ago that it is archived."""
    lose_first(young)
    monkeypatch.setattr(test_archive_steps, "SETTINGS", settings)
    with suppress(CorruptFileError):
        young.run(Steps())
    assert young.broker.told[0][0] == 0
    young.broker.age()
    assert young.broker.starts == {0: 0, 1: 10}


def test_a_run_ends_with_a_file_that_a_checkpoint_has_and_that_is_missing(young: World) -> None:
    path = lose_first(young)
    with pytest.raises(CorruptFileError, match=path):
        young.run(Steps())


@pytest.mark.parametrize("entries", [1, 2, 50])
def test_one_since_the_last_checkpoint_is_an_error_that_retention_hears_of(
    entries: int, young: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "CHECKPOINT_ENTRIES", entries)
    young.broker.grow(0, 14, young.broker.leading[0])
    young.run(Steps())
    assert young.broker.told[0][0] == 14
    path = max(path for path in young.lake.files if "hour=10" in path)
    del young.lake.files[path]
    with pytest.raises(CorruptFileError, match=path):
        young.run(Steps())
    assert young.broker.told[0][0] == 10


def test_one_that_goes_while_a_run_goes_on_is_missed_at_the_next_checkpoint(
    young: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_archive_steps, "SETTINGS", LOSSY)
    young.broker.grow(0, 14, young.broker.leading[0])
    young.broker.meanwhile["read"] = lambda: lose_first(young)
    young.run(Steps())
    assert young.broker.told[0][0] == 0
    young.broker.age()
    assert young.broker.starts[0] == 0


def test_no_checkpoint_forgets_one_that_went_while_the_run_went_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has its records any more: the next run notes that."""
    monkeypatch.setattr(test_archive_steps, "SETTINGS", LOSSY)
    monkeypatch.setattr(manifest, "CHECKPOINT_ENTRIES", 4)
    world.broker.grow(0, 14, world.broker.leading[0])
    world.broker.meanwhile["read"] = lambda: lose_first(world)
    world.run(Steps())
    assert not Manifest.load(world.lake).checkpoint
    world.run(Steps())
    assert archive(world).lost == {0: [(0, 4)]}
    assert Manifest.load(world.lake).checkpoint


def test_one_of_a_partition_that_gets_a_leader_while_a_run_goes_on(
    young: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_archive_steps, "SETTINGS", LOSSY)
    monkeypatch.setattr(manifest, "CHECKPOINT_ENTRIES", 50)
    lose_first(young)
    young.broker.unled.add(0)
    young.broker.grow(1, 14, young.broker.leading[1])
    young.broker.meanwhile["read"] = young.broker.unled.clear
    young.run(Steps())
    assert young.broker.told[0][0] == 0


def test_one_that_is_back_holds_nothing_up(young: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = min(path for path in young.lake.files if path.startswith("topic="))
    content = young.lake.files[path]
    lose_first(young)
    run_without_it(young, monkeypatch)
    assert young.broker.told[0][0] == 0
    young.lake.files[path] = content
    run_without_it(young, monkeypatch, 30)
    assert young.broker.told[0][0] == 30


def test_a_run_of_another_cluster_gives_up_nothing_that_a_checkpoint_has(
    young: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody there has heard of the topic; where it lives, all of its records are left."""
    path = lose_first(young)
    with pytest.raises(CorruptFileError, match=path):
        young.run(Steps())
    young.broker.is_there = False
    with monkeypatch.context() as patch:
        patch.setattr(test_archive_steps, "SETTINGS", LOSSY)
        young.run(Steps())
    young.broker.is_there = True
    with pytest.raises(CorruptFileError, match=path):
        young.run(Steps())
    assert path in archive(young).files
    young.broker.age()
    assert young.broker.starts[0] == 0
