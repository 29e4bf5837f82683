"""A task of a replay is killed while its target's followers lag: the next attempt writes nothing twice (A6)."""

import multiprocessing
import threading
from multiprocessing.synchronize import Event
from unittest.mock import patch

import pyarrow as pa
import pytest
from tests.integration.cluster.harness import Cluster

from penstock.client.raw import RawClient, TopicPartition
from penstock.spark.pipelines.replaying import writing
from penstock.spark.pipelines.replaying.tail import Tail, look
from penstock.spark.pipelines.replaying.writing import Done, Writer
from penstock.spark.schema import ARROW_TYPES

ROWS = 10


def attempt(bootstrap: str, topic: str) -> list[Done]:
    columns = {
        "partition": [0] * ROWS,
        "offset": list(range(ROWS)),
        "timestamp": [0] * ROWS,
        "key": [None] * ROWS,
        "value": [b"v"] * ROWS,
        "headers": [None] * ROWS,
    }
    arrays = [pa.array(values, ARROW_TYPES[name]) for name, values in columns.items()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    return Writer(bootstrap, topic, "source/1", append=False).write(iter([batch]))


def attempt_when_told(bootstrap: str, topic: str, ready: Event, go: Event) -> None:
    """Up to its look at the target: that takes a second or more, and followers are missed after three."""

    def look_when_told(*given: object, **named: bool) -> Tail:
        ready.set()
        go.wait()
        return look(*given, **named)  # type: ignore[arg-type]

    with patch.object(writing, "look", look_when_told):
        attempt(bootstrap, topic)


@pytest.mark.soak
def test_what_only_the_leader_has_is_not_written_again(
    three: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = TopicPartition(three.topic, 0)
    looks = threading.Event()

    def seen(client: RawClient, *given: object, **named: bool) -> Tail:
        looks.set()
        return look(client, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(writing, "look", seen)
    done: list[Done] = []
    bootstrap = three.broker(three.leader()).bootstrap
    second = threading.Thread(target=lambda: done.extend(attempt(bootstrap, three.topic)))
    spawn = multiprocessing.get_context("spawn")
    ready, go = spawn.Event(), spawn.Event()
    first = spawn.Process(target=attempt_when_told, args=(bootstrap, three.topic, ready, go))
    first.start()
    assert ready.wait(60)
    with RawClient(bootstrap) as client:
        with three.paused(*three.followers()):
            go.set()
            three.until(lambda: client.epoch_ends({at: 0})[at][1] == ROWS, "the leader has them")
            first.kill()
            first.join()
            second.start()
            assert looks.wait(60)
        second.join()
        assert [(result.rows, result.skipped) for result in done] == [(0, ROWS)]
        assert client.settled_end(at) == ROWS
