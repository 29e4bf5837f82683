"""Full collections walk what is new alone, and what clients leave behind goes without them."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.raw import FETCH_VERSION, fetch_request, make_batch
from tests.unit.frontends.connected import Connected
from tests.unit.frontends.in_memory import Machine
from tests.unit.server.test_conversation import SMALL, Server, Wire
from tests.unit.server.unlistened import Unlistened
from tests.unit.waiting import until

from penstock.server import collector as module
from penstock.server.collector import Collector
from penstock.server.kafka_connection import KafkaConnection
from penstock.services.topics.deletions import TopicReference
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.connection import ClientConnection


@pytest.fixture
def collecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setattr(module, "_WORTH_A_LOOK", 10**9)  # however much the tests of this process have made
    thresholds = gc.get_threshold()
    collector = Collector()
    collector.begin()
    yield collector
    collector.end()
    gc.set_threshold(*thresholds)


def is_walked(wanted: Any) -> bool:
    return any(tracked is wanted for tracked in gc.get_objects())


def test_what_survives_a_full_collection_is_not_walked_again(collecting: Collector) -> None:
    kept: list[Any] = [[]]
    gc.collect(1)
    assert is_walked(kept), "it may be garbage soon"
    gc.collect()
    assert not is_walked(kept)


def test_circles_that_were_left_out_go_when_those_have_doubled(
    monkeypatch: pytest.MonkeyPatch, collecting: Collector
) -> None:
    class Circle:
        def __init__(self) -> None:
            self.self = self

    circle = Circle()
    gone = weakref.ref(circle)
    gc.collect()
    del circle
    gc.collect()
    assert gone() is not None, "left out"
    monkeypatch.setattr(collecting, "_walk_all_at", 0)
    monkeypatch.setattr(collecting, "_collections_left", 1)
    monkeypatch.setattr(module, "_COLLECTIONS_BETWEEN", 2)
    for _ in range(1 + 2 + 2):  # three counts
        gc.collect()
        assert gone() is not None, "a large request may be gone before all of it is walked"
    gc.collect()
    assert gone() is None
    kept = [[]]
    gc.collect()
    assert not is_walked(kept), "it is left out again"


def test_what_is_left_out_is_counted_only_when_it_may_have_doubled(
    monkeypatch: pytest.MonkeyPatch, collecting: Collector
) -> None:
    monkeypatch.setattr(module, "_WALKED_MAX", 10**8)
    gc.collect()  # one billion less what the tests have made: nine more go by before it is worth a count
    counted: list[int] = []
    monkeypatch.setattr(module.gc, "get_freeze_count", lambda: counted.append(1) or 0)
    for _ in range(8):
        gc.collect()
    assert not counted
    gc.collect()
    assert len(counted) == 1


async def test_connections_go_without_a_collection(no_collection: None) -> None:
    loop = asyncio.get_running_loop()
    server = Server(loop, SMALL)
    connection = KafkaConnection(loop, server, server, Unlistened())
    gone = weakref.ref(connection)
    connection.connection_made(Wire())
    connection.connection_lost(None)
    del connection
    await asyncio.sleep(0)
    assert gone() is None


@pytest.mark.parametrize("is_answered", [True, False])
async def test_fetches_that_waited_go_without_a_collection(no_collection: None, *, is_answered: bool) -> None:
    """Whether they were answered in the end, or their client left."""
    async with Machine().broker() as asked:
        await asked.create("orders", {})
        loop = asyncio.get_running_loop()
        dispatcher = Connected(asked).dispatcher
        connection = KafkaConnection(loop, Server(loop, SMALL), dispatcher, Unlistened())
        gone = weakref.ref(connection)
        connection.connection_made(Wire())
        request = fetch_request("orders", 0, max_wait_ms=60_000)
        _, frame = ClientConnection("waiting").send(ApiKey.FETCH, FETCH_VERSION, request)
        connection.get_buffer(-1)[: len(frame)] = frame
        connection.buffer_updated(len(frame))
        owed = connection._owed
        assert owed
        if is_answered:
            asked.append("orders", make_batch([b"there"]))
            await until(lambda: not owed)
        connection.connection_lost(None)
        del connection
        await until(lambda: gone() is None)


async def test_logs_go_without_a_collection(no_collection: None) -> None:
    async with Machine().broker() as asked:
        await asked.create("orders", {}, partitions=2)
        left = [weakref.ref(partition.log) for partition in asked.services.table.partitions()]
        await asked.services.topics.delete([TopicReference("orders")], timeout_ms=1000)
        await asked.broker._jobs.idle()
        await asyncio.sleep(0)
        assert [log() for log in left] == [None, None]
