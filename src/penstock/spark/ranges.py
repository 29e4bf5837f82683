"""Which offsets a batch reads, checked against what the cluster has now.

Everything here runs on the driver. A task checks its own range again when it reads, since retention or a
deletion may come in between.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from penstock.client.raw import EARLIEST, LATEST, Retirement, TopicPartition
from penstock.spark.cluster import Cluster, Found, edges, find, resolve, served
from penstock.spark.errors import OptionError
from penstock.spark.loss import LossPolicy
from penstock.spark.offsets import Offsets, StreamOffset
from penstock.spark.options import ReadOptions
from penstock.spark.planning import Range

NONE: Mapping[TopicPartition, int] = MappingProxyType({})
UNKNOWN_LIMIT = -1


def batch_ranges(cluster: Cluster, options: ReadOptions) -> tuple[list[Range], Found]:
    """The ranges of a batch read: both ends as the options say, inside what the logs hold."""
    found = find(cluster, options.subscription)
    committed = options.committed
    start = resolve(
        cluster,
        options.starting,
        found.partitions,
        committed=committed,
        latest_when_none=options.latest_when_no_timestamp,
    )
    end = resolve(cluster, options.ending, found.partitions, committed=committed, latest_when_none=True)
    _check_order(options, start, end)
    earliest = edges(cluster, found.partitions, EARLIEST)
    latest = edges(cluster, found.partitions, LATEST, committed=committed)
    loss = LossPolicy(fail=options.fail_on_data_loss)
    nothing_lost = served(cluster, {at: start[at] for at in start if start[at] < end[at]}, earliest)
    ranges = []
    for at in found.partitions:
        begin, until = start[at], end[at]
        if begin < earliest[at] and begin < until:
            if at not in nothing_lost:
                loss.report(f"{at} has no offset {begin} any more, it begins at {earliest[at]}")
            begin = earliest[at]
        if until > latest[at] or begin > latest[at]:
            loss.report(f"{at} was asked for offsets {begin} to {until}, but it ends at {latest[at]}")
            until = min(until, latest[at])
        ranges.append(Range(at, begin, until))
    return [part for part in ranges if part.size], found


def _check_order(options: ReadOptions, start: Offsets, end: Offsets) -> None:
    """Only where the user wrote both numbers: otherwise an empty range is just nothing to read."""
    if options.starting.offsets is None or options.ending.offsets is None:
        return
    for at, offset in options.starting.offsets.items():
        if offset >= 0 and 0 <= options.ending.offsets[at] < offset:
            raise OptionError(f"startingOffsets of {at} ({start[at]}) is after endingOffsets ({end[at]})")


def stream_ranges(
    start: StreamOffset,
    end: StreamOffset,
    now: Found,
    earliest: Mapping[TopicPartition, int],
    loss: LossPolicy,
    nothing_lost: Collection[TopicPartition] = (),
    first: Mapping[TopicPartition, int] = NONE,
) -> list[Range]:
    """The ranges of one batch of a stream, the same ones whenever it is replayed.

    `now` and `earliest` say what is still there, `nothing_lost` and `first` as `served` and `firsts` do. `start.at`
    does not count for a first batch (see `offsets`), nor for partitions of a topic that was made anew since.
    """
    begins = end.origin if end.origin is not None else start.at
    ranges = []
    for at, until in sorted(end.at.items()):
        recreated = _differ(start.ids.get(at.topic), end.ids.get(at.topic))
        known = at in begins and not recreated
        if known and begins[at] == until:
            continue
        if at not in earliest:
            loss.report(f"{at} was deleted before offsets up to {until} were read")
            continue
        if _differ(end.ids.get(at.topic), now.ids.get(at.topic)):
            loss.report(
                f"topic {at.topic} was deleted and made anew before {at} was read up to offset {until}"
            )
            continue
        begin = begins[at] if known else earliest[at]
        if begin > until:
            loss.report(f"{at} went back from offset {begin} to {until}: its end was cut off")
            continue
        if not known and not recreated and begin > (beginning := first.get(at, 0)):
            loss.report(
                f"{at} is new and begins at offset {begin}, not {beginning}: what was before is gone unread"
            )
        if begin < earliest[at]:
            if at not in nothing_lost:
                loss.report(f"{at} has no offset {begin} any more, it begins at {earliest[at]}")
            begin = earliest[at]
        ranges.append(Range(at, begin, until))
    return [part for part in ranges if part.size]


def _differ(topic_id: str | None, other: str | None) -> bool:
    """Ids of topics differ; unknown ones (an old broker, a checkpoint of Spark's own source) never do."""
    return topic_id is not None and other is not None and topic_id != other


def advance(
    start: StreamOffset,
    now: Found,
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    loss: LossPolicy,
) -> tuple[Offsets, Offsets, dict[str, str]]:
    """Where each partition would start and end if everything there is were taken, and the ids for the checkpoint.

    `earliest` is needed only for partitions that `start` does not have, or has under another topic id.
    """
    ids = start.ids | now.ids
    begins, ends = {}, {}
    for at in sorted(start.at.keys() - set(now.partitions)):
        if _differ(start.ids.get(at.topic), now.ids.get(at.topic)):
            continue  # of the old topic; the new one may get such a partition later, from its beginning
        if at.topic not in now.ids:
            loss.report(f"{at} is gone: the topic or partition was deleted after offset {start.at[at]}")
        # Kept as it is: should the same topic come back (a broker that was late), the stream goes on there.
        begins[at] = ends[at] = start.at[at]
    for topic in now.topics:
        if _differ(start.ids.get(topic), now.ids.get(topic)):
            loss.report(f"topic {topic} was deleted and made anew: offsets of the old one mean nothing in it")
    for at in now.partitions:
        if at not in start.at or _differ(start.ids.get(at.topic), now.ids.get(at.topic)):
            begins[at], ends[at] = earliest[at], latest[at]
        else:
            begins[at], ends[at] = start.at[at], latest[at]
            if ends[at] < begins[at]:
                loss.report(f"{at} went back from offset {begins[at]} to {ends[at]}: its end was cut off")
    return begins, ends, ids


def retired(
    start: StreamOffset, now: Found, told: Mapping[TopicPartition, Retirement], loss: LossPolicy
) -> Offsets:
    """Partitions that left a topic which is still there, and where they ended for readers.

    They were retired, and retention has left readers nothing: who stood at the end has missed nothing. Whoever did not
    is told so once; from then on the checkpoint knows. `told`: what the cluster says of those that are `gone`.
    """
    ends = {}
    for at in gone(start, now):
        position, known = start.at[at], told.get(at)
        limit = UNKNOWN_LIMIT if known is None else known.limit
        if limit is None:
            continue  # the broker that was asked shows it still, or again: the next look tells
        ends[at] = limit
        if start.retired.get(at) == limit:
            continue
        if limit == UNKNOWN_LIMIT:
            loss.report(
                f"{at} was retired, and nobody knows any more where it ended: records behind offset {position} may be "
                "gone unread"
            )
        elif position < limit:
            loss.report(
                f"{at} was retired, and its records from offset {position} to {limit} are gone unread"
            )
    return ends


def gone(start: StreamOffset, now: Found) -> list[TopicPartition]:
    """Partitions that left a topic which is still there."""
    return [
        at
        for at in sorted(start.at.keys() - set(now.partitions))
        if at.topic in now.ids and not _differ(start.ids.get(at.topic), now.ids[at.topic])
    ]


def fresh(start: StreamOffset, now: Found) -> list[TopicPartition]:
    """Partitions whose beginning must be asked for: new ones, and all of a topic that was made anew."""
    return [
        at
        for at in now.partitions
        if at not in start.at or _differ(start.ids.get(at.topic), now.ids.get(at.topic))
    ]
