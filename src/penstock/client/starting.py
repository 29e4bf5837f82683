"""Where reading begins where no commit says so."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, cast

from confluent_kafka import TopicPartition

from penstock.client.connect import REQUEST_SECONDS
from penstock.client.errors import ClientError

if TYPE_CHECKING:
    from confluent_kafka import Consumer as RawConsumer

Offsets = Mapping[int, int] | Mapping[tuple[str, int], int]
Start = Literal["earliest", "latest"] | datetime | timedelta | int | Offsets


def check_start(start: object) -> None:
    if isinstance(start, datetime | timedelta | Mapping):
        return
    if isinstance(start, int) and not isinstance(start, bool):
        return
    if start not in ("earliest", "latest"):
        raise ClientError(
            f"start={start!r} is not a place: earliest, latest, a datetime, a timedelta (that long ago), "
            "an offset, or {partition: offset}"
        )


def reset_policy(start: Start) -> str:
    """What librdkafka does where there is no commit and nothing else was said, or retention has overtaken a commit."""
    return "latest" if start == "latest" else "earliest"


def is_simple(start: Start) -> bool:
    return isinstance(start, str)


def begin_at(raw: "RawConsumer", start: Start, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """The partitions with the offsets at which they begin."""
    if isinstance(start, timedelta):
        start = datetime.now(UTC) - start
    if isinstance(start, datetime):
        asked_ms = round(start.timestamp() * 1000)
        asked = [TopicPartition(one.topic, one.partition, asked_ms) for one in partitions]
        # Where nothing is that late, librdkafka answers with the end.
        return list(raw.offsets_for_times(asked, timeout=REQUEST_SECONDS))
    return [TopicPartition(one.topic, one.partition, _offset(start, one)) for one in partitions]


def _offset(start: Start, one: TopicPartition) -> int:
    if isinstance(start, int):
        return start
    if isinstance(start, Mapping):
        by_place = cast("Mapping[object, int]", start)
        found = by_place.get((one.topic, one.partition), by_place.get(one.partition))
        return -1001 if found is None else found  # librdkafka's "by the reset policy"
    return -2 if start == "earliest" else -1
