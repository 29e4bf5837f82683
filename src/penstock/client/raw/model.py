"""What the raw client takes and gives: names, offsets and whole record batches."""

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

# Points in time that ListOffsets knows by name. LATEST is the high watermark, or the last stable offset for those
# who read committed records only; MAX_TIMESTAMP is the record with the largest timestamp.
EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3


class TopicInfo(NamedTuple):
    name: str
    topic_id: uuid.UUID | None  # None: the broker is too old to have them
    partitions: tuple[int, ...]
    internal: bool


class Heard(NamedTuple):
    """What brokers say of topics, each for itself."""

    topics: Mapping[str, tuple[TopicInfo, ...]]
    # Whether every broker has answered that any of them names: what none of them knows is not there.
    by_all: bool
    # The id of the cluster that all of them are of, where they say so.
    cluster: str | None = None
    # The id of each topic that more than half of the brokers tell that any of them names.
    by_most: Mapping[str, uuid.UUID] = MappingProxyType({})


class OffsetAt(NamedTuple):
    """Offset -1: there is no record at or after the time asked for."""

    offset: int
    timestamp: int


class Retirement(NamedTuple):
    """What is known of the number of a partition, whether there is one now or not."""

    limit: int | None  # a reader who stood there has missed nothing; None: it is there and not retired
    first: int  # where the log begins that has this number, or gets it next


class AbortedRange(NamedTuple):
    """A producer's records from here on do not count, until its next abort marker."""

    producer_id: int
    first_offset: int


class Fetched(NamedTuple):
    records: memoryview  # whole record batches, back to back; a part of a last one is cut off
    aborted: tuple[AbortedRange, ...]  # only where committed records were asked for
    log_start: int
    high_watermark: int
    last_stable: int
