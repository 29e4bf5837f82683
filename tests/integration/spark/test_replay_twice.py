"""Two runs of one replay at once, and a target that is made again under a run: nothing is there twice, or left out."""

import threading
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


def rows(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {"partition": 0, "offset": n, "timestamp": n * 1000, "key": None, "value": b"%d" % n}
            for n in range(count)
        ],
        schema=pa.schema([(name, ARROW_TYPES[name]) for name in COLUMNS]),
    )


def held(topics: Topics, target: str) -> list[bytes | None]:
    with RawClient(topics.bootstrap) as client:
        end = client.settled_end(TopicPartition(target, 0))
    return [record.value for record in topics.consume(target, end)]


def all_of(count: int) -> list[bytes | None]:
    return [b"%d" % n for n in range(count)]


@pytest.mark.parametrize("append", [False, True])
def test_a_run_that_another_overtakes_adds_nothing(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, append: bool
) -> None:
    """It has looked at the target, and then the other one writes."""
    target = topics.create("target")
    writer = Writer(topics.bootstrap, target, "t/1", append=append)
    cuts = iter([2, 1, 3])  # of the other one, its own, and of the next run
    monkeypatch.setattr(writing, "first_rows", lambda: next(cuts))

    def overtaken(*given: Any, **named: Any) -> Tail:
        tail = look(*given, **named)
        monkeypatch.setattr(writing, "look", look)
        writer.write(iter([rows(30)]))
        return tail

    monkeypatch.setattr(writing, "look", overtaken)
    with pytest.raises(OtherRunError, match="another run of this replay writes to") as raised:
        writer.write(iter([rows(50)]))
    assert "--append" not in str(raised.value)
    assert held(topics, target) == all_of(30)
    assert writer.write(iter([rows(50)]))[0].rows == 20
    assert held(topics, target) == all_of(50)


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
