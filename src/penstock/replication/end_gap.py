"""A log that ends behind a gap: whoever begins to lead others with it writes a control record there.

The only copy of a partition goes on behind what it lost (`storage.lost`), and a follower may have been cut within a gap
of compaction. Who copies such a log comes to its end only with a batch behind the gap: while nobody writes, a new
replica would never have everything, and no move or drain of it would end.
"""

import logging
from typing import TYPE_CHECKING

from penstock.core.errors import ApiError, StorageError
from penstock.records.batch import read_header
from penstock.records.relay import filler_batch
from penstock.storage.replicated import batches_end

if TYPE_CHECKING:
    from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)


def close_end_gap(partition: "Partition", now_ms: int) -> None:
    """For one that has just begun to lead others. One that is retired does so by itself: its relay marks epochs.

    The record is of now: others may have what lies in the gap, and retention must not take that for old.
    """
    log = partition.log
    if partition.leading is None or partition.retirement is not None or log.failed:
        return
    # Whatever makes such a gap goes on in a new file.
    if log.active.size or log.start_offset == log.end_offset:
        return
    try:
        if batches_end(log) < log.end_offset:
            batch = filler_batch(1, now_ms)
            partition.append(memoryview(batch), read_header(batch), now_ms)
    except (ApiError, StorageError) as error:  # a full disk, say: the next batch closes it, too
        logger.warning("%s-%d ends behind a gap: %s", partition.topic, partition.index, error)
