"""Where reading begins where no commit says so."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from numbers import Integral
from operator import index
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeGuard, cast

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException, TopicPartition

from penstock.client.connect import REQUEST_SECONDS
from penstock.client.consuming.unfinished import Where, place_of
from penstock.client.errors import ClientError

if TYPE_CHECKING:
    from confluent_kafka import Consumer as RawConsumer

Offsets = Mapping[int, int] | Mapping[tuple[str, int], int]
Start = Literal["earliest", "latest"] | datetime | timedelta | int | Offsets


def checked_start(start: Start) -> Start:
    """With plain numbers, whatever kinds were given."""
    if isinstance(start, datetime | timedelta):
        return start
    if isinstance(start, Mapping):
        by_place = cast("Mapping[Any, object]", start)
        return {place: _checked_in(start, offset) for place, offset in by_place.items()}
    if is_number(start):
        return checked_offset("start", start)
    if not isinstance(start, str) or start not in ("earliest", "latest"):
        raise ClientError(
            f"start={start!r} is not a place: earliest, latest, a datetime, a timedelta (that long ago), "
            "an offset, or {partition: offset}"
        )
    return start


def _checked_in(start: object, offset: object) -> int:
    if not is_number(offset):
        raise ClientError(f"start={start!r}: {offset!r} is no offset, which is a number from 0 on")
    return checked_offset("start", offset)


def is_number(given: object) -> TypeGuard[SupportsIndex]:
    """A whole one, also numpy's."""
    return isinstance(given, Integral) and not isinstance(given, bool)


def checked_offset(what: str, given: SupportsIndex) -> int:
    """Below 0 Kafka's clients have special places, each its own: -1 the end, -2 the first message, and more."""
    offset = index(given)
    if offset < 0:
        raise ClientError(
            f'{what}={offset} is no offset, which is a number from 0 on: "latest" is the end (-1 to other clients), '
            '"earliest" the first message (-2)'
        )
    return offset


# What librdkafka does where retention has overtaken a position: what is left there is read. Also where reading began at
# the end: that was told as a number, and a retry topic never begins there.
RESET_POLICY = "earliest"


def is_simple(start: Start) -> bool:
    """Whether librdkafka finds it by itself, and would find the same again later: the end moves."""
    return start == "earliest"


def begin_at(raw: "RawConsumer", start: Start, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """The partitions with the offsets at which they begin. The end is told as a number: who goes back to where
    reading began must not skip what has come since."""
    if isinstance(start, timedelta):
        start = datetime.now(UTC) - start
    if isinstance(start, datetime):
        # The ends first: what comes between the two requests may be that late, and is behind them.
        ends = _ends(raw, partitions)
        begun = _found(raw, max(0, round(start.timestamp() * 1000)), partitions)
    else:
        begun = [
            TopicPartition(partition.topic, partition.partition, _offset(start, partition))
            for partition in partitions
        ]
        ends = _ends(raw, [partition for partition in begun if partition.offset == OFFSET_END])
    return [ends[place_of(partition)] if partition.offset == OFFSET_END else partition for partition in begun]


def _ends(raw: "RawConsumer", partitions: list[TopicPartition]) -> dict[Where, TopicPartition]:
    return {place_of(partition): partition for partition in _found(raw, OFFSET_END, partitions)}


def seek_to(raw: "RawConsumer", to: Start, place: Where) -> TopicPartition:
    """The partition with an offset that is a number, unless the partition is left to the reset policy."""
    at = begin_at(raw, to, [TopicPartition(*place)])[0]
    if at.offset == OFFSET_BEGINNING:
        at.offset = raw.get_watermark_offsets(TopicPartition(*place), timeout=REQUEST_SECONDS)[0]
    return at


def _found(raw: "RawConsumer", time_ms: int, partitions: list[TopicPartition]) -> list[TopicPartition]:
    if not partitions:
        return []
    asked = [TopicPartition(partition.topic, partition.partition, time_ms) for partition in partitions]
    return told(raw.offsets_for_times(asked, timeout=REQUEST_SECONDS))


def told(answer: list[TopicPartition]) -> list[TopicPartition]:
    """An answer whose partitions may have errors of their own: the first is raised."""
    for partition in answer:
        if partition.error is not None:
            raise KafkaException(partition.error)
    return list(answer)


def _offset(start: Start, partition: TopicPartition) -> int:
    if isinstance(start, int):
        return start
    if isinstance(start, Mapping):
        by_place = cast("Mapping[object, int]", start)
        found = by_place.get((partition.topic, partition.partition), by_place.get(partition.partition))
        return -1001 if found is None else found  # librdkafka's "by the reset policy"
    return OFFSET_BEGINNING if start == "earliest" else OFFSET_END
