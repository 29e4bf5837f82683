"""How logs stand to what is archived of them: the same, or from some offset on another one.

A log loses its end in a power cut under `written`, with a failed disk, or by an unclean election, and gives the same
offsets to other records. Leader epochs tell: the manifest has those of what is archived, each with its end, and
OffsetForLeaderEpoch says where an epoch ended in the log that there is now. Of all the lines of records that are
archived of a partition, the one that has most in common with the log is the one that counts.

Whoever answers must lead now: a leader that was replaced, and has not heard of it, knows nothing of the epochs after
its own, and would seem to have lost what they wrote. So nobody is asked whose epoch is below one that is archived.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.client.raw import Retirement, TopicPartition
from penstock.spark.pipelines.archive.entries import UNKNOWN_EPOCH, Mark
from penstock.spark.pipelines.archive.lines import Branch, Line


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

    # Where logs parted from what counts of what is archived of them.
    parted: Mapping[TopicPartition, int] = field(default_factory=dict)
    # The branches that have more in common with them, up to there.
    branches: Mapping[TopicPartition, int] = field(default_factory=dict)
    # Logs that begin behind it, with nothing lost: the partition was retired and grown again.
    served: Collection[TopicPartition] = ()
    # Partitions that were retired and left their topic: where they ended for readers.
    ended: Mapping[TopicPartition, int] = field(default_factory=dict)


class Held(NamedTuple):
    """What is archived of a partition."""

    line: Line
    branches: Sequence[Branch] = ()

    @property
    def epochs_max(self) -> int:
        """Whoever leads the partition leads in an epoch that is no lower."""
        return max(line.epochs_max for line in (self.line, *(branch.line for branch in self.branches)))


class Epochs(Protocol):
    def epoch_ends(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]: ...


# (epoch) -> (the largest epoch in the log at or below it, where that ends), -1 where the log has none as late as that
EndOf = Callable[[int], tuple[int, int]]


class Broker(Epochs, Protocol):
    def progress(self, topics: Collection[str]) -> Mapping[TopicPartition, int]:
        """How far the broker believes topics to be archived that wait for it."""

    def serves(self, at: TopicPartition, offset: int) -> bool: ...

    def retirements(self, wanted: Iterable[TopicPartition]) -> Mapping[TopicPartition, Retirement]: ...


def standing(
    broker: Broker,
    logs: Mapping[TopicPartition, Log],
    held: Mapping[TopicPartition, Held],
    own: Collection[TopicPartition] = (),
) -> Standing:
    """`held`: of topics that are there; a partition that has no log is one that left.

    `own`: partitions that this process has archived: progress that is lower there was only not told yet.
    """
    there = {at: of for at, of in held.items() if at in logs}
    asks = {at: _asked_once(broker, at) for at in there}
    agree = {at: agreed(of.line.marks, asks[at], logs[at].latest) for at, of in there.items()}
    unknown = {at for at, of in there.items() if agree[at] == _marked(of.line) < of.line.end}
    doubted = {at.topic for at in unknown if at not in own}
    progress = broker.progress(doubted) if doubted else {}
    for at in unknown:
        log, where = logs[at], there[at].line.end
        if at not in own:
            # The broker lowers it when it finds that it has less. One that is low already, for a file that is missing,
            # would hide that: so it counts whoever made it low. Below the start there is nothing to read again.
            where = min(where, max(progress.get(at, where), log.earliest))
        agree[at] = min(where, log.latest)
    parted, branches = {}, {}
    for at, of in there.items():
        where, branch = _best(agree[at], of.branches, asks[at], logs[at])
        if branch is not None:
            branches[at] = branch
        if branch is not None or where < of.line.end:
            parted[at] = where
    starts = {at: parted.get(at, of.line.end) for at, of in there.items()}
    late = {at: start for at, start in starts.items() if start < logs[at].earliest}
    # Only where the log begins with its first record; a new leader serves what the one that told the start had deleted.
    served = {
        at for at, start in late.items() if logs[at].earliest == logs[at].first and broker.serves(at, start)
    }
    left = [at for at in held if at not in logs]
    told = broker.retirements(left) if left else {}
    ended = {at: retirement.limit for at, retirement in told.items() if retirement.limit is not None}
    return Standing(parted, branches, served, ended)


def partings(
    broker: Epochs, lines: Mapping[TopicPartition, Line], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Where logs with these ends parted from lines, as far as epochs tell; nothing of those that did not."""
    found = {
        at: agreed(line.marks, _asked_once(broker, at), ends[at]) for at, line in lines.items() if line.marks
    }
    return {at: where for at, where in found.items() if where < _marked(lines[at])}


def _asked_once(broker: Epochs, at: TopicPartition) -> EndOf:
    answers: dict[int, tuple[int, int]] = {}

    def end_of(epoch: int) -> tuple[int, int]:
        if epoch not in answers:
            answers[epoch] = broker.epoch_ends({at: epoch})[at]
        return answers[epoch]

    return end_of


def _best(where: int, branches: Sequence[Branch], end_of: EndOf, log: Log) -> tuple[int, int | None]:
    """The line that has most in common with a log; what counts already stays unless another one has more."""
    best: tuple[int, int | None] = where, None
    for branch in branches:
        common = agreed(branch.line.marks, end_of, log.latest)
        if common == _marked(branch.line) < branch.line.end:
            # What has no epoch, of records that the log no longer has: nothing speaks against it.
            common = max(common, min(branch.line.end, log.earliest))
        if common > best[0]:
            best = common, branch.number
    return best


def agreed(marks: Sequence[Mark], end_of: EndOf, latest: int) -> int:
    """Up to where a log that ends at `latest` has what marks tell of.

    An epoch has one leader, so as far as both have records of it they are the same, and so is all before. The latest
    that both have is looked for, as followers do it. What has no epoch is believed as far as nothing speaks against it.
    """
    unknown: int | None = None
    bound = latest
    epoch_max = max((epoch for epoch, _ in marks), default=UNKNOWN_EPOCH)
    for epoch, end in reversed(marks):
        if epoch == UNKNOWN_EPOCH:
            unknown = min(end, bound)
            continue
        if epoch <= epoch_max:
            found, there = end_of(epoch)
            if found == epoch:
                return min(end, there) if unknown is None or there < end else unknown
            if there >= 0:
                epoch_max, bound = found, min(bound, there)
        # The log has nothing of it, so it is not what was archived behind it either.
        unknown = None
    return unknown or 0


def _marked(line: Line) -> int:
    """Up to where epochs tell of it."""
    return line.marks[-1][1] if line.marks else 0
