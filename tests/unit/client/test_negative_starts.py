"""Offsets below 0 and times before 1970 mean special places to Kafka's clients, and none to whoever counts."""

from datetime import UTC, datetime
from typing import Any

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
