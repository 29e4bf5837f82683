"""Opening the logs of a topic: where each begins and under which epochs, as the metadata says, and what was lost."""

import gc
import logging
from collections.abc import Collection

from penstock.config.topic import TopicConfig
from penstock.coordination.image import ClusterImage
from penstock.coordination.image import Topic as TopicImage
from penstock.coordination.nodes import PartitionState
from penstock.core.errors import StorageError
from penstock.replication.table import PartitionTable
from penstock.storage.data_dir import DataDir
from penstock.storage.lost import Lost, forget_lost
from penstock.storage.recovered import Recovered

logger = logging.getLogger(__name__)

# Partitions opened by one job in a thread: enough to keep the hand-over cheap, few enough to stay responsive.
OPENED_AT_ONCE = 256


def open_all(
    data_dir: DataDir,
    image: TopicImage,
    config: TopicConfig,
    indexes: list[int],
    *,
    node: int,
    vouched: bool,
    expected: Collection[int] = (),
) -> dict[int, Recovered | StorageError]:
    """These partitions' logs, or why they cannot be opened. Blocks.

    `vouched`: a clean stop left what is here of them, and nobody has touched it since. `expected`: others rely on there
    being a log of these.
    """
    opened: dict[int, Recovered | StorageError] = {}
    absent: set[int] = set()
    begun = False  # whether some that were absent may be half made
    try:
        absent = data_dir.absent(image.name, indexes)
        plain = [
            index for index in indexes if not first_offset(image, index) and not first_epoch(image, index)
        ]
        data_dir.lay_out(image.name, image.id, plain, expected)
    except StorageError:  # opening each will say what is wrong
        begun, vouched = True, False
    for index in indexes:
        try:
            # A process that ended uncleanly may have had a failed fsync, which the page cache does not show, and names
            # that are not durable; so may this one, in an earlier try to open the log.
            after_failure = not vouched and (begun or index not in absent)
            recovered = open_one(
                data_dir,
                image,
                config,
                index,
                node=node,
                after_failure=after_failure,
                expected=index in expected,
            )
            # Laying out has left a recovery point.
            opened[index] = recovered._replace(unvouched=recovered.unvouched or index in absent)
        except StorageError as error:
            opened[index] = error
        except FileNotFoundError as error:
            opened[index] = StorageError(f"{error} is gone")
    if len(indexes) == OPENED_AT_ONCE:
        # There are more to come, and they stay: collections that walk thousands of logs again and again stop everybody,
        # also from a thread. (A log that goes later goes without a collection: nothing in it refers back to it.)
        gc.collect(1)
        gc.freeze()
    return opened


def open_one(
    data_dir: DataDir,
    image: TopicImage,
    config: TopicConfig,
    index: int,
    *,
    node: int,
    after_failure: bool,
    expected: bool,
) -> Recovered:
    """See `DataDir.open_partition`. Blocks."""
    recovered = data_dir.open_partition(
        image.name,
        image.id,
        index,
        config,
        first_offset=first_offset(image, index),
        first_epoch=first_epoch(image, index),
        after_failure=after_failure,
        only_copy=(only_copy := is_only_copy(image.partitions[index], node)),
        has_laggards=len(image.partitions[index].replicas) > 1,
        expected=expected,
    )
    if recovered.lost is not None:
        _tell_lost(image.name, index, recovered.lost, only_copy=only_copy)
        try:
            forget_lost(recovered.log.files, recovered.log.directory)
        except StorageError as error:
            logger.warning("partition %s-%d: the next start tells that again: %s", image.name, index, error)
    return recovered


def is_relied_on(state: PartitionState, node: int) -> bool:
    """Whether others go by what this replica has, or would if nobody else were left."""
    return len(state.replicas) > 1 and node in (*state.isr, *state.eligible, *state.suspects)


def is_only_copy(state: PartitionState, node: int) -> bool:
    """Whether nobody else need have what is committed: then this log leads, whatever it lost.

    So it goes on behind that, also where there are other replicas: those that stopped before it may well be whole, and
    are not cut so.
    """
    return set(state.replicas) == {node} or {*state.isr, *state.eligible, *state.suspects} == {node}


def first_offset(image: TopicImage, index: int) -> int:
    """Where the log of a new replica begins: behind all offsets that an earlier partition of that number had."""
    earlier, state = image.removed.get(index), image.partitions[index]
    first = 0 if earlier is None else earlier.end
    if state.retirement is not None and len(state.replicas) == 1:
        # The only log is lost. What readers had is gone, and what is written from now on is to be moved.
        first = max(first, state.retirement.offset)
    return first


def first_epoch(image: TopicImage, index: int) -> int:
    """No leader of an earlier partition of that number had this epoch or a later one."""
    earlier = image.removed.get(index)
    return 0 if earlier is None else earlier.epoch


def all_are_open(image: ClusterImage, table: PartitionTable, node: int) -> bool:
    """Whether every replica that belongs here is served."""
    for topic in image.stored_topics():
        known = table.by_id.get(topic.id)
        opened = {} if known is None else known.partitions
        if any(
            node in partition.replicas and index not in opened
            for index, partition in enumerate(topic.partitions)
        ):
            return False
    return True


def is_in_doubt(recovered: Recovered) -> bool:
    """Whether it may lack what others take it to have."""
    return recovered.log.is_incomplete or recovered.unvouched


def tell(topic: str, index: int, recovered: Recovered, *, vouched: bool) -> None:
    """What became of a log that was opened; `vouched`: nothing should have."""
    if recovered.cut_bytes:
        logger.warning("partition %s-%d: cut %d bytes of a torn tail", topic, index, recovered.cut_bytes)
    if recovered.set_aside:
        logger.error(
            "partition %s-%d: files that cannot be of this log, or lie behind a hole in it, were set aside: %s. Nobody "
            "serves them; look at them before they are deleted",
            topic,
            index,
            ", ".join(recovered.set_aside),
        )
    if recovered.log.is_incomplete:
        logger.error(
            "partition %s-%d: its files are gone or damaged (or it was being made when the broker was killed), and "
            "nothing here says what is missing. It is copied anew from its leader. Where all that were in sync are "
            "like that, it has none until all replicas were asked what they have, or an unclean election",
            topic,
            index,
        )
    elif vouched and recovered.unvouched:
        logger.error(
            "partition %s-%d: its files are gone or damaged, though the broker was stopped cleanly, and nothing here "
            "says how much it had. It is taken for what a crash left of it. What was found is in quarantine",
            topic,
            index,
        )


def _tell_lost(topic: str, index: int, lost: Lost, *, only_copy: bool) -> None:
    logger.error(
        "partition %s-%d HAS LOST the offsets %d to %d: they were durable here, and are gone from its files. %s",
        topic,
        index,
        lost[0],
        lost[1] - 1,
        "No other replica is known to have them, and no other records get these offsets: the files can be put back "
        "while the broker is stopped, from a backup of its own (never another broker's, nor where it was compacted)"
        if only_copy
        else "They are copied from another replica; what is left behind a hole is set aside as *.damaged",
    )
