"""How logs stand to what is archived of them: the same, or from some offset on another one.

A log loses its end in a power cut under `written`, with a failed disk, or by an unclean election, and gives the same
offsets to other records. Leader epochs tell: the manifest has those of what is archived, each with its end, and
OffsetForLeaderEpoch says where an epoch ended in the log that there is now.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.client.raw import Retirement, TopicPartition
from penstock.spark.pipelines.archive.entries import Mark


@dataclass(frozen=True, slots=True)
class Log:
    """One partition as the broker has it: offsets `earliest` to `latest` (not included)."""

    earliest: int
    latest: int
    # Where it began: not at 0 where an earlier partition of that number was removed.
    first: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What the broker says of where the archive stands, beside the ends of its logs."""

    # Where logs parted from what is archived of them.
    parted: Mapping[TopicPartition, int] = field(default_factory=dict)
    # Logs that begin behind it, with nothing lost: the partition was retired and grown again.
    served: Collection[TopicPartition] = ()
    # Partitions that were retired and left their topic: where they ended for readers.
    ended: Mapping[TopicPartition, int] = field(default_factory=dict)


class Epochs(Protocol):
    def epoch_ends(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]: ...


class Broker(Epochs, Protocol):
    def progress(self, topics: Collection[str]) -> Mapping[TopicPartition, int]:
        """How far the broker believes topics to be archived that wait for it."""

    def serves(self, at: TopicPartition, offset: int) -> bool: ...

    def retirements(self, wanted: Iterable[TopicPartition]) -> Mapping[TopicPartition, Retirement]: ...


def standing(
    broker: Broker,
    logs: Mapping[TopicPartition, Log],
    archived: Mapping[TopicPartition, int],
    marks: Mapping[TopicPartition, Sequence[Mark]],
    own: Collection[TopicPartition] = (),
) -> Standing:
    """`archived`: of topics that are there.

    `own`: partitions that this process has archived: progress that is lower there was only not told yet.
    """
    parted = partings(broker, {at: of for at, of in marks.items() if at in logs})
    unknown = {
        at for at in archived if at in logs and at not in parted and not _marked(marks, at, archived[at])
    }
    doubted = {at.topic for at in unknown if at not in own}
    progress = broker.progress(doubted) if doubted else {}
    for at in unknown:
        log, where = logs[at], archived[at]
        if at not in own:
            # The broker lowers it when it finds that it has less. Below the start there is nothing to read again.
            where = min(where, max(progress.get(at, where), log.earliest))
        if min(where, log.latest) < archived[at]:
            parted[at] = min(where, log.latest)
    starts = {at: parted.get(at, start) for at, start in archived.items() if at in logs}
    late = {at: start for at, start in starts.items() if start < logs[at].earliest}
    served = {at for at, start in late.items() if broker.serves(at, start)}
    left = [at for at in archived if at not in logs]
    told = broker.retirements(left) if left else {}
    ended = {at: one.limit for at, one in told.items() if one.limit is not None}
    return Standing(parted, served, ended)


def partings(broker: Epochs, marks: Mapping[TopicPartition, Sequence[Mark]]) -> dict[TopicPartition, int]:
    """Where logs parted from what is archived, as far as epochs tell; nothing of those that did not."""

    def ask(at: TopicPartition) -> Callable[[int], tuple[int, int]]:
        return lambda epoch: broker.epoch_ends({at: epoch})[at]

    found = {at: parting(of, ask(at)) for at, of in marks.items() if of}
    return {at: where for at, where in found.items() if where is not None}


def parting(marks: Sequence[Mark], end_of: Callable[[int], tuple[int, int]]) -> int | None:
    """Where a log parted from what is archived; None where it did not.

    `end_of` tells the largest epoch in the log at or below the one asked for, and where that ends; -1 where the log has
    no epoch as late as that. An epoch has one leader, so as far as both have records of it they are the same, and so
    is all before. The latest that both have is looked for, as followers do it.
    """
    latest = marks[-1][0]
    for epoch, archived_end in reversed(marks):
        if epoch > latest:
            continue
        found, end = end_of(epoch)
        if found == epoch:
            where = min(archived_end, end)
            return where if where < marks[-1][1] else None
        latest = found if end >= 0 else epoch
    return 0 if marks[-1][1] else None


def _marked(marks: Mapping[TopicPartition, Sequence[Mark]], at: TopicPartition, end: int) -> bool:
    """Whether the epoch of the last archived offset is known."""
    return bool(marks.get(at)) and marks[at][-1][1] == end
