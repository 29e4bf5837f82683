"""Retention waits for the archive: what progress is believed, and how much is kept for it.

An archive tells how far it is by the topic setting `penstock.archive.progress` (see `core.archive_progress`). Refused
is what cannot be true: it must name this topic by its id, partitions that exist, and offsets that readers have been
able to see, as far as the broker that is asked leads them. Of the others it cannot tell, so what is stored is only a
claim: believed is what the leader of a partition finds true of its own log (`vouched`), whenever retention asks.

A log can lose its end afterwards, in a power cut where the topic does not sync before it acknowledges, with a failed
disk, or by an unclean election. Then the offsets between its new end and the progress will be given to other records,
which no archive has: before such a log is led, the stored progress is lowered to where it parts from what was archived.

Progress may go back at any time; retention then just keeps more.
"""

import logging
from collections.abc import Mapping
from typing import Protocol

from penstock.config.settings import ConfigError
from penstock.coordination.image import Topic
from penstock.coordination.metadata import MetadataStore
from penstock.coordination.tree import ConflictError, CoordinationError
from penstock.core.archive_progress import ArchiveProgress, id_text
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, PenstockError
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable
from penstock.replication.table import Topic as ServedTopic
from penstock.storage.log import Log

log = logging.getLogger(__name__)

PROGRESS = "penstock.archive.progress"
# Against other processes only versions guard; each lost round is somebody else's progress, so few are enough.
_ROUNDS_MAX = 5


class ProgressKeeper(Protocol):
    """For whoever opens logs."""

    async def lower(self, topic: str, topic_id: bytes, ends: Mapping[int, int]) -> None: ...


class ArchiveProgressStore:
    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def lower(self, topic: str, topic_id: bytes, ends: Mapping[int, int]) -> None:
        """Let the topic's progress reach no further than the ends of these partitions, durably."""

        def change(current: Mapping[str, str]) -> Mapping[str, str]:
            progress = ArchiveProgress.parse(current.get(PROGRESS, ""))
            if progress is None or self._metadata.image.topics[topic].id != topic_id:
                raise _NothingToLowerError
            lowered = progress.lowered(ends)
            if lowered == progress:
                raise _NothingToLowerError
            log.warning(
                "%s: the archive has more than the log, which lost its end: progress %s becomes %s",
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


def vouched(log: Log, offset: int, epoch: int | None) -> int:
    """How much of it is archived, as far as this log shows; `epoch` is that of the record before `offset`.

    A leader epoch has one leader, so a record of the same offset and epoch is the same record, and so is all before it.
    """
    known = min(offset, log.end_offset)
    if epoch is None or known <= log.start_offset:
        return known
    if known == offset and log.epochs.epoch_at(offset - 1) == epoch:
        return offset
    found, end = log.epochs.end_of(epoch, log.end_offset)
    # Nothing of that epoch is here: then it is not known where the two part, and the archive looks for it anew.
    return min(known, end) if found == epoch else log.start_offset


def archived_end(topic: ServedTopic, partition: Partition) -> int:
    """Up to where what the leader has here is archived."""
    offset = topic.config.archived_offset(topic.id, partition.index)
    return vouched(partition.log, offset, topic.config.archived_epoch(partition.index))


def check_progress(
    topic: Topic, before: ArchiveProgress | None, wanted: ArchiveProgress | None, table: PartitionTable
) -> None:
    """ApiError when this cannot be how far an archive of the topic is."""
    if wanted is None or wanted == before:
        return
    if wanted.topic_id != topic.id:
        raise _refused(
            f"it is of the topic id {id_text(wanted.topic_id)}, but '{topic.name}' has {id_text(topic.id)}: "
            "the topic was deleted and created again, or this is the progress of another one"
        )
    for partition, offset in wanted.next_offsets.items():
        if partition >= len(topic.partitions):
            removed = topic.removed.get(partition)
            if removed is not None and offset <= removed.end:
                continue  # it was retired meanwhile
            raise _refused(
                f"it names partition {partition}, but '{topic.name}' has {len(topic.partitions)} partition(s)"
            )
        known = before.next_offsets.get(partition, 0) if before is not None else 0
        if offset > known:
            _check_visible(topic, partition, offset, wanted.epochs.get(partition), table)


def _check_visible(topic: Topic, index: int, offset: int, epoch: int | None, table: PartitionTable) -> None:
    served = table.by_id.get(topic.id)
    partition = served.partitions.get(index) if served is not None else None
    alone = len(topic.partitions[index].replicas) == 1
    if partition is None or not (partition.is_leader or alone):
        return  # its leader will see
    if partition.log.failed:
        # Its end will be known when it is back: until then nobody can read from it, so no archive moves on either.
        raise ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{topic.name}-{index} is offline, so its end is not known: try again later",
        )
    if offset > partition.readable.offset:
        raise _refused(
            f"it says that partition {index} is archived up to {offset}, but readers can see it only up to "
            f"{partition.readable.offset}"
        )
    if vouched(partition.log, offset, epoch) < offset:
        raise _refused(
            f"it says that partition {index} is archived up to {offset}, with a last record of leader epoch {epoch}, "
            "but another one has that offset: the log lost its end since then"
        )


def refuse_progress_of_new_topic(progress: ArchiveProgress | None) -> None:
    """Its id is given to it when it is created, so no value can be right."""
    if progress is not None:
        raise _refused("a topic that is being created has nothing archived yet: leave it out")


def _refused(reason: str) -> ConfigError:
    return ConfigError(f"Invalid value for configuration {PROGRESS}: {reason}")
