"""Two runs of one replay at once, and a target that is made again under a run: nothing is there twice, or left out."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.spark.topics import Topics

from penstock.client.admin.admin import Admin
from penstock.client.raw import RawClient, TopicPartition
from penstock.spark.pipelines.replaying import writing
from penstock.spark.pipelines.replaying.errors import OtherRunError, ReplayError, TargetRemadeError
from penstock.spark.pipelines.replaying.tail import Tail, look
from penstock.spark.pipelines.replaying.writing import Writer
from penstock.spark.schema import ARROW_TYPES

COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")


LARGE_BYTES = 600_000  # two of them are more than a batch takes


def rows(count: int, more_bytes: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "partition": 0,
                "offset": n,
                "timestamp": n * 1000,
                "key": None,
                "value": b"%d" % n + bytes(more_bytes),
            }
            for n in range(count)
        ],
        schema=pa.schema([(name, ARROW_TYPES[name]) for name in COLUMNS]),
    )


def held(topics: Topics, target: str) -> list[bytes]:
    with RawClient(topics.bootstrap) as client:
        end = client.settled_end(TopicPartition(target, 0))
    return [(record.value or b"").rstrip(b"\0") for record in topics.consume(target, end)]


def all_of(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


def behind_the_look(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """It happens when the next run knows where it goes on, and before it sends anything."""

    def overtaken() -> int:
        monkeypatch.setattr(writing, "first_rows", lambda: 2)
        meanwhile()
        return 1

    monkeypatch.setattr(writing, "first_rows", overtaken)


def before_the_look(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """It happens when the next run has asked for its sequence."""

    def overtaken(*given: Any, **named: Any) -> Tail:
        monkeypatch.setattr(writing, "look", look)
        meanwhile()
        return look(*given, **named)

    monkeypatch.setattr(writing, "look", overtaken)


@pytest.mark.parametrize("append", [False, True])
def test_a_run_that_another_overtakes_adds_nothing(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, append: bool
) -> None:
    """It has looked at the target, and then the other one writes."""
    target = topics.create("target")
    writer = Writer(topics.bootstrap, target, "t/1", append=append)
    behind_the_look(monkeypatch, lambda: writer.write(iter([rows(30)])))
    with pytest.raises(OtherRunError, match="another run of this replay writes to") as raised:
        writer.write(iter([rows(50)]))
    assert "--append" not in str(raised.value)
    assert held(topics, target) == all_of(30)
    assert writer.write(iter([rows(50)]))[0].rows == 20
    assert held(topics, target) == all_of(50)


@pytest.mark.parametrize("append", [False, True])
def test_a_run_that_another_overtakes_between_its_question_and_its_look_goes_on_behind_it(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, append: bool
) -> None:
    """Each batch is one record: what it sends would be a repeat by its sequence of another one."""
    target = topics.create("target")
    writer = Writer(topics.bootstrap, target, "t/1", append=append)
    before_the_look(monkeypatch, lambda: writer.write(iter([rows(1, LARGE_BYTES)])))
    assert writer.write(iter([rows(6, LARGE_BYTES)]))[0].rows == 5
    assert held(topics, target) == all_of(6)


def test_a_run_beside_one_that_writes_on_leaves_nothing_out(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = topics.create("target")
    writer = Writer(topics.bootstrap, target, "t/1", append=False)
    wrote, go_on = threading.Event(), threading.Event()
    told: list[ReplayError] = []

    def slow() -> Iterator[pa.RecordBatch]:
        yield rows(1, LARGE_BYTES)
        wrote.set()
        go_on.wait()
        yield rows(8, LARGE_BYTES).slice(1)

    def run() -> None:
        try:
            writer.write(slow())
        except OtherRunError as error:
            told.append(error)

    thread = threading.Thread(target=run)

    def overtaken() -> None:
        thread.start()
        wrote.wait()

    before_the_look(monkeypatch, overtaken)
    try:
        writer.write(iter([rows(8, LARGE_BYTES)]))
    finally:
        go_on.set()
        thread.join()
    assert held(topics, target) == all_of(8)
    assert len(told) == 1  # it comes last with what is there, further back than the broker remembers


def test_a_run_gives_up_where_another_writes_whenever_it_looks(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = topics.create("target")
    writer = Writer(topics.bootstrap, target, "t/1", append=False)
    written = 0

    def overtaken(*given: Any, **named: Any) -> Tail:
        nonlocal written
        written += 1
        with monkeypatch.context() as other:
            other.setattr(writing, "look", look)
            writer.write(iter([rows(written)]))
        return look(*given, **named)

    monkeypatch.setattr(writing, "look", overtaken)
    with pytest.raises(OtherRunError):
        writer.write(iter([rows(50)]))
    assert held(topics, target) == all_of(written)


@pytest.mark.parametrize("append", [False, True])
def test_a_run_whose_batches_are_those_of_another_stores_nothing_twice(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, append: bool
) -> None:
    """Both saw the same end, and each batch is one record: to the broker they repeat each other."""
    target = topics.create("target")
    writer = Writer(topics.bootstrap, target, "t/1", append=append)
    behind_the_look(monkeypatch, lambda: writer.write(iter([rows(3, LARGE_BYTES)])))
    writer.write(iter([rows(6, LARGE_BYTES)]))
    assert held(topics, target) == all_of(6)


@pytest.mark.parametrize("append", [False, True])
def test_two_runs_of_large_records_at_once_write_each_record_once(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, append: bool
) -> None:
    target = topics.create("target")
    writer = Writer(topics.bootstrap, target, "t/1", append=append)
    both = threading.Barrier(2)

    def at_once() -> int:
        both.wait()  # both have looked
        return 1

    monkeypatch.setattr(writing, "first_rows", at_once)
    told: list[ReplayError] = []

    def run() -> None:
        try:
            writer.write(iter([rows(20, LARGE_BYTES)]))
        except OtherRunError as error:
            told.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) < 2
    assert held(topics, target) == all_of(20)


@pytest.mark.parametrize("append", [False, True])
def test_a_first_batch_that_is_told_to_lie_before_the_end_that_was_seen_ends_the_run(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, append: bool
) -> None:
    """As if sequences were counted otherwise than by whoever wrote what is there."""
    target = topics.create("target")
    writer = Writer(topics.bootstrap, target, "t/1", append=append)
    writer.write(iter([rows(1, LARGE_BYTES)]))
    with monkeypatch.context() as wrong:
        wrong.setattr(RawClient, "next_sequence", lambda *_: 0)
        with pytest.raises(OtherRunError):
            writer.write(iter([rows(6, LARGE_BYTES)]))
    assert held(topics, target) == all_of(1)


def test_many_runs_at_once_write_each_record_once(topics: Topics) -> None:
    target = topics.create("target")
    writer = Writer(topics.bootstrap, target, "t/1", append=False)
    start = threading.Barrier(4)
    parts = [rows(3000).slice(at, 100) for at in range(0, 3000, 100)]
    told: list[str] = []

    def run() -> None:
        start.wait()
        try:
            writer.write(iter(parts))
        except ReplayError as error:
            told.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.write(iter(parts))
    assert held(topics, target) == all_of(3000)
    assert all("another run of this replay writes to" in line for line in told)


def test_a_target_that_is_made_again_under_a_run_is_not_begun_in_the_middle(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = topics.create("target")
    with RawClient(topics.bootstrap) as client:
        meant = client.describe([target])[target].topic_id
    assert meant is not None
    writer = Writer(topics.bootstrap, target, "t/1", append=False, topic_id=str(meant))
    writer.write(iter([rows(10)]))
    admin = Admin(topics.bootstrap)

    def make_again() -> None:
        admin.delete(target)
        admin.create(target, partitions=1)

    make_again()  # between two tasks
    with pytest.raises(TargetRemadeError, match="was deleted and made again"):
        writer.write(iter([rows(20).slice(10)]))
    assert held(topics, target) == []
    with RawClient(topics.bootstrap) as client:
        writer = replace(writer, topic_id=str(client.describe([target])[target].topic_id))

    def meanwhile(*given: Any, **named: Any) -> Tail:
        make_again()  # under a task
        return look(*given, **named)

    monkeypatch.setattr(writing, "look", meanwhile)
    with pytest.raises(TargetRemadeError, match="was deleted and made again"):
        writer.write(iter([rows(20).slice(10)]))
    assert held(topics, target) == []
