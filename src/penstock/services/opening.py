"""Opening the logs of a topic: where each begins and under which epochs, as the metadata says, and what was lost."""

import logging
from contextlib import suppress

from penstock.config.topic import TopicConfig
from penstock.coordination.image import Topic as TopicImage
from penstock.core.errors import StorageError
from penstock.storage.data_dir import DataDir
from penstock.storage.recovered import Recovered

log = logging.getLogger(__name__)


def open_all(
    data_dir: DataDir, image: TopicImage, config: TopicConfig, indexes: list[int]
) -> dict[int, Recovered | StorageError]:
    """These partitions' logs, or why they cannot be opened. Blocks."""
    opened: dict[int, Recovered | StorageError] = {}
    with suppress(StorageError):  # whatever is wrong, opening each will say it
        data_dir.lay_out(image.name, image.id, [index for index in indexes if index not in image.removed])
    for index in indexes:
        try:
            # A process that ended uncleanly may have had a failed fsync, which the page cache does not show.
            opened[index] = data_dir.open_partition(
                image.name,
                image.id,
                index,
                config,
                first_offset=first_offset(image, index),
                first_epoch=first_epoch(image, index),
                after_failure=not data_dir.was_clean,
            )
        except StorageError as error:
            opened[index] = error
        except FileNotFoundError as error:
            opened[index] = StorageError(f"{error} is gone")
    return opened


def first_offset(image: TopicImage, index: int) -> int:
    """Where the log of a new replica begins: behind all offsets that an earlier partition of that number had."""
    earlier, state = image.removed.get(index), image.partitions[index]
    first = 0 if earlier is None else earlier.end
    if state.inlet is not None and len(state.replicas) == 1:
        # The only log is lost. What readers had is gone, and what is written from now on is to be moved.
        first = max(first, state.inlet.offset)
    return first


def first_epoch(image: TopicImage, index: int) -> int:
    """No leader of an earlier partition of that number had this epoch or a later one."""
    earlier = image.removed.get(index)
    return 0 if earlier is None else earlier.epoch


def tell_lost(topic: str, index: int, lost: tuple[int, int]) -> None:
    """Once: from now on the log's recovery point is a new one, for what is left."""
    log.error(
        "partition %s-%d HAS LOST the offsets %d to %d: they were durable here, and are gone from its files. Another "
        "replica may have them; a copy of the files may, too: stop the broker before others get these offsets",
        topic,
        index,
        lost[0],
        lost[1] - 1,
    )
