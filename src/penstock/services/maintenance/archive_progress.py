"""Retention waits for the archive: what progress is believed, and how much is kept for it.

An archive tells how far it is by the topic setting `penstock.archive.progress` (see `core.archive_progress`). Refused
is what cannot be true: it must name this topic by its id, partitions that exist, and offsets that readers have been
able to see; the leaders of what moved are asked for that, wherever they are. Refused is also what another lake has than
the one that told before: retention waits for one, and whoever wants it to wait for another takes the stored progress
away first. Still, what is stored is only a claim: believed is what the leader of a partition finds true of its own log
(`vouched`), whenever retention asks.

A log can lose its end afterwards, in a power cut where the topic does not sync before it acknowledges, with a failed
disk, or by an unclean election. Then the offsets between its new end and the progress will be given to other records,
which no archive has: before such a log is led, the stored progress is lowered to where it parts from what was archived.

Progress may go back at any time; retention then just keeps more.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from penstock.config.settings import ConfigError
from penstock.config.topic import TopicConfig
from penstock.coordination.image import Topic
from penstock.coordination.metadata import MetadataStore
from penstock.coordination.tree import ConflictError, CoordinationError
from penstock.core.archive_progress import ArchiveProgress, id_text
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, PenstockError
from penstock.replication.partition import Partition
from penstock.replication.peer import PeerError
from penstock.replication.table import PartitionTable
from penstock.replication.table import Topic as ServedTopic
from penstock.services.hosting.roles import NOBODY
from penstock.services.list_offsets import knows_its_end
from penstock.storage.log import Log

logger = logging.getLogger(__name__)

PROGRESS = "penstock.archive.progress"
# Against other processes only versions guard; each lost round is somebody else's progress, so few are enough.
_ROUNDS_MAX = 5

# (leader, topic, its partitions with their leader epochs) -> up to where readers can see those that it tells of.
AskLeader = Callable[[int, str, Mapping[int, int]], Awaitable[Mapping[int, int]]]


class ProgressKeeper(Protocol):
    """For whoever opens logs."""

    async def lower(self, topic: str, topic_id: bytes, logs: Mapping[int, Log]) -> None: ...


class ArchiveProgressStore:
    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def lower(self, topic: str, topic_id: bytes, logs: Mapping[int, Log]) -> None:
        """Let the topic's progress say no more of these partitions than their logs vouch for, durably."""

        def change(current: Mapping[str, str]) -> Mapping[str, str]:
            progress = ArchiveProgress.parse(current.get(PROGRESS, ""))
            if progress is None or self._metadata.image.topics[topic].id != topic_id:
                raise _NothingToLowerError
            lowered = progress.lowered({at: _claim(log, at, progress) for at, log in logs.items()})
            if lowered == progress:
                raise _NothingToLowerError
            logger.warning(
                "%s: what is said to be archived is not in the log, which lost its end: progress %s becomes %s",
                topic,
                progress,
                lowered,
            )
            return {**current, PROGRESS: str(lowered)}

        for _ in range(_ROUNDS_MAX):
            try:
                await self._metadata.alter_topic_configs(topic, change)
            except ConflictError:
                continue
            except _NothingToLowerError:
                pass
            except ApiError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
            return
        raise CoordinationError("too many others alter the same settings at the same time")


class _NothingToLowerError(PenstockError):
    """Ends a change without writing."""


def _claim(log: Log, index: int, progress: ArchiveProgress) -> tuple[int, int | None]:
    """What of the progress is true of this log, with the epoch of the record before it."""
    said = progress.next_offsets.get(index, 0)
    end = vouched(log, said, progress.epochs.get(index))
    if end < said and end <= log.start_offset:
        # Nothing that is here is archived. Of what was before nobody knows, and a later leader may have it still.
        return 0, None
    epoch = log.epochs.epoch_at(end - 1)
    return end, epoch if epoch >= 0 else None


def is_overstated(topic_id: bytes, config: TopicConfig, partition: Partition) -> bool:
    """Whether more is said to be archived of the log than it has."""
    offset = config.archived_offset(topic_id, partition.index)
    return vouched(partition.log, offset, config.archived_epoch(partition.index)) < offset


def vouched(log: Log, offset: int, epoch: int | None) -> int:
    """How much of it is archived, as far as this log shows; `epoch` is that of the record before `offset`.

    A leader epoch has one leader, so a record of the same offset and epoch is the same record, and so is all before it.
    An offset beyond the end without an epoch says nothing about this log: it was lost and perhaps written anew, or
    somebody mistyped it. All that is still there is kept until an archive tells how far it is.
    """
    known = min(offset, log.end_offset)
    if known <= log.start_offset:
        return known
    if epoch is None:
        return offset if known == offset else log.start_offset
    if known == offset and log.epochs.epoch_at(offset - 1) == epoch:
        return offset
    found, end = log.epochs.end_of(epoch, log.end_offset)
    # Nothing of that epoch is here: then it is not known where the two part, and the archive looks for it anew.
    return max(log.start_offset, min(known, end)) if found == epoch else log.start_offset


def archived_end(topic: ServedTopic, partition: Partition) -> int:
    """Up to where what the leader has here is archived."""
    offset = topic.config.archived_offset(topic.id, partition.index)
    return vouched(partition.log, offset, topic.config.archived_epoch(partition.index))


async def ends_elsewhere(
    topic: Topic, before: ArchiveProgress | None, wanted: ArchiveProgress | None, node: int, ask: AskLeader
) -> dict[int, int]:
    """How far readers can see what moved and is led by others, as those tell; one that cannot be asked is ApiError."""
    by_leader: dict[int, dict[int, int]] = {}
    for index in _moved(topic, before, wanted):
        state = topic.partitions[index]
        if state.leader not in (node, NOBODY):
            by_leader.setdefault(state.leader, {})[index] = state.leader_epoch
    ends: dict[int, int] = {}
    for leader, epochs in by_leader.items():
        try:
            told = await ask(leader, topic.name, epochs)
        except PeerError as error:
            raise _not_told(topic, min(epochs)) from error
        ends.update(told)
    return ends


def _moved(topic: Topic, before: ArchiveProgress | None, wanted: ArchiveProgress | None) -> list[int]:
    """Of which partitions more is said to be archived than was."""
    if wanted is None or wanted.topic_id != topic.id:
        return []
    known = before.next_offsets if before is not None else {}
    return [
        index
        for index, offset in wanted.next_offsets.items()
        if index < len(topic.partitions) and offset > known.get(index, 0)
    ]


def check_progress(
    topic: Topic,
    before: ArchiveProgress | None,
    wanted: ArchiveProgress | None,
    table: PartitionTable,
    elsewhere: Mapping[int, int],
) -> None:
    """ApiError when this cannot be how far an archive of the topic is; `elsewhere` as `ends_elsewhere` gives it."""
    if wanted is None or wanted == before:
        return
    if wanted.topic_id != topic.id:
        raise _refused(
            f"it is of the topic id {id_text(wanted.topic_id)}, but '{topic.name}' has {id_text(topic.id)}: "
            "the topic was deleted and created again, or this is the progress of another one"
        )
    if before is not None and before.topic_id == topic.id and not before.may_be_of(wanted.lake):
        raise _refused(
            f"it is not of the lake {before.lake}, for which retention of '{topic.name}' waits: set it empty first to "
            "let it wait for another one (`penstock pipeline archive --take-over` does)"
        )
    for index, offset in wanted.next_offsets.items():
        if index >= len(topic.partitions):
            removed = topic.removed.get(index)
            if removed is not None and offset <= removed.end:
                continue  # it was retired meanwhile
            raise _refused(
                f"it names partition {index}, but '{topic.name}' has {len(topic.partitions)} partition(s)"
            )
    served = table.by_id.get(topic.id)
    for index in _moved(topic, before, wanted):
        claimed = wanted.next_offsets[index]
        partition = served.partitions.get(index) if served is not None else None
        alone = len(topic.partitions[index].replicas) == 1
        if partition is not None and (partition.is_leader or alone):
            _check_here(topic, partition, claimed, wanted.epochs.get(index))
        elif index not in elsewhere:
            raise _not_told(topic, index)
        elif claimed > elsewhere[index]:
            raise _unseen(index, claimed, elsewhere[index])


def _check_here(topic: Topic, partition: Partition, offset: int, epoch: int | None) -> None:
    index = partition.index
    if partition.log.failed:
        # Its end will be known when it is back: until then nobody can read from it, so no archive moves on either.
        raise ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{topic.name}-{index} is offline, so its end is not known: try again later",
        )
    if not knows_its_end(partition):
        raise _not_told(topic, index)
    if offset > partition.limits.readable.offset:
        raise _unseen(index, offset, partition.limits.readable.offset)
    if vouched(partition.log, offset, epoch) < offset:
        raise _refused(
            f"it says that partition {index} is archived up to {offset}, with a last record of leader epoch {epoch}, "
            "but another one has that offset: the log lost its end since then"
        )


def refuse_progress_of_new_topic(progress: ArchiveProgress | None) -> None:
    """Its id is given to it when it is created, so no value can be right."""
    if progress is not None:
        raise _refused("a topic that is being created has nothing archived yet: leave it out")


def _unseen(index: int, offset: int, end: int) -> ConfigError:
    return _refused(
        f"it says that partition {index} is archived up to {offset}, but readers can see it only up to {end}"
    )


def _not_told(topic: Topic, index: int) -> ApiError:
    return ApiError(
        ErrorCode.LEADER_NOT_AVAILABLE,
        f"the leader of {topic.name}-{index} cannot tell now how far readers can see it: try again later",
    )


def _refused(reason: str) -> ConfigError:
    return ConfigError(f"Invalid value for configuration {PROGRESS}: {reason}")
