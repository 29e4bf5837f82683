"""What is given as a place to begin at. Offsets below 0 and times before 1970 mean special places to Kafka's clients,
and none to whoever counts; and whole numbers come in other kinds than `int`, as numpy's."""

from collections.abc import Callable
from datetime import UTC, datetime
from numbers import Integral
from typing import Any

import numpy as np
import pytest
from confluent_kafka import TopicPartition
from tests.unit.client.scripted import Broker, RawConsumer, install

from penstock.client.admin.offsets import OffsetAdmin
from penstock.client.consuming.consumer import Consumer
from penstock.client.consuming.starting import begin_at
from penstock.client.errors import ClientError

NEGATIVE: list[Any] = [-1, -2, -3, -1001, {0: -2}, {("t", 0): -1}, {0: 5, 1: -1}]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    broker.make("t", 1)
    install(broker, monkeypatch.setattr)
    return broker


@pytest.mark.parametrize("start", NEGATIVE, ids=str)
@pytest.mark.parametrize("group", [None, "g"])
def test_a_negative_offset_is_no_start(broker: Broker, start: Any, group: str | None) -> None:
    with pytest.raises(ClientError, match=r'"latest" is the end .*, "earliest" the first'):
        Consumer("scripted", "t", group=group, start=start, stop_on=())


@pytest.mark.parametrize("to", [-1, -2, -3])
def test_nor_a_place_to_seek_to(broker: Broker, to: int) -> None:
    consumer = Consumer("scripted", "t", group="g", stop_on=())
    with pytest.raises(ClientError, match='"latest" is the end'):
        consumer.seek("t", 0, to)


@pytest.mark.parametrize("start", [{0: "latest"}, {0: True}, {0: 1.5}], ids=str)
def test_nor_is_what_is_no_number(broker: Broker, start: Any) -> None:
    with pytest.raises(ClientError, match="offset"):
        Consumer("scripted", "t", start=start, stop_on=())


@pytest.mark.parametrize("before_ms", [1, 2, 3, 3_600_000])
def test_a_time_before_1970_is_that_of_the_first_message(broker: Broker, before_ms: int) -> None:
    broker.append(("t", 0), b"first", None, [], at_ms=5)
    asked: list[int] = []

    class Listening(RawConsumer):
        def offsets_for_times(
            self, partitions: list[TopicPartition], timeout: float = -1
        ) -> list[TopicPartition]:
            asked.extend(partition.offset for partition in partitions)
            return super().offsets_for_times(partitions, timeout)

    when = datetime.fromtimestamp(-before_ms / 1000, UTC)
    begun = begin_at(Listening(broker, {}), when, [TopicPartition("t", 0)])  # type: ignore[arg-type]
    assert [partition.offset for partition in begun] == [0]
    assert asked == [-1, 0]


@pytest.mark.parametrize("to", [-1, -2])
def test_a_group_is_not_reset_to_a_negative_offset(to: int) -> None:
    admin = OffsetAdmin.__new__(OffsetAdmin)
    with pytest.raises(ClientError, match='"latest" is the end'):
        admin.plan_reset("g", "t", to)


class Whole:
    """As whole numbers of other libraries: registered as such, and no `int`."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number


Integral.register(Whole)
KINDS: list[Callable[[int], Any]] = [np.int64, np.uint8, Whole]


def read(broker: Broker, count: int, **options: Any) -> tuple[Consumer, Callable[[], list[int]]]:
    for number in range(count):
        broker.append(("t", 0), b"%d" % number, None, [])
    consumer = Consumer("scripted", "t", group="g", stop_on=(), **options)
    assert broker.consumer is not None
    broker.consumer.queue.append(("assign", [("t", 0)]))

    def offsets() -> list[int]:
        return [message.offset for message in (consumer.receive(0.1) for _ in range(8)) if message]

    return consumer, offsets


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["offset", "partitions", "places"])
def test_any_whole_number_is_an_offset(broker: Broker, kind: Callable[[int], Any], form: str) -> None:
    start = {"offset": kind(2), "partitions": {0: kind(2)}, "places": {("t", 0): kind(2)}}[form]
    consumer, offsets = read(broker, 5, start=start)
    assert offsets() == [2, 3, 4]
    consumer.close()


@pytest.mark.parametrize("kind", KINDS)
def test_also_one_to_seek_to(broker: Broker, kind: Callable[[int], Any]) -> None:
    consumer, offsets = read(broker, 5)
    consumer.receive(0.1)
    consumer.seek("t", 0, kind(2))
    assert offsets() == [2, 3, 4]
    consumer.close()
    assert broker.committed["t", 0][0] == 5


@pytest.mark.parametrize("kind", [np.int64, Whole])
def test_a_negative_one_of_another_kind_is_refused_too(broker: Broker, kind: Callable[[int], Any]) -> None:
    for start in (kind(-1), {0: kind(-1)}):
        with pytest.raises(ClientError, match='"latest" is the end'):
            Consumer("scripted", "t", start=start, stop_on=())


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_reset_to_any_whole_number(
    broker: Broker, kind: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = OffsetAdmin.__new__(OffsetAdmin)
    answers = {
        "partition_indexes": [0],
        "describe_groups": [],
        "earliest": {0: 0},
        "latest": {0: 5},
    }
    for call, answer in answers.items():
        monkeypatch.setattr(OffsetAdmin, call, lambda *_, answer=answer: answer)
    (move,) = admin.plan_reset("g", "t", kind(2))
    assert (move.after, type(move.after)) == (2, int)
