"""Reading a partition of a coordinator's topic back into memory, in slices: others keep being served meanwhile.

A record that cannot be read costs what it said, and nothing else: it is reported, and the rest is loaded.
"""

import asyncio
import logging
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.core.errors import ApiError
from penstock.records.batch import NO_PRODUCER_ID, BatchHeader, Buffer, InvalidBatch, check_batch
from penstock.records.control import transaction_end
from penstock.records.reader import iter_batches, payload_of, records_in
from penstock.replication.limits import Reader
from penstock.replication.partition import Partition
from penstock.services.coordinator.machine import Machine
from penstock.storage.segment import ColdRead, Slice
from penstock.wire.kafka.primitives import DecodeError

logger = logging.getLogger(__name__)

# Records applied before others on the loop get their turn: about a millisecond's worth.
_APPLIED_AT_ONCE = 200


class _Ended(NamedTuple):
    """What a control batch says."""

    offset: int
    producer_id: int
    committed: bool


# (offset, key, value, producer of the transaction)
_Stored = tuple[int, bytes | None, bytes | None, int]


@dataclass(slots=True)
class _Read:
    """What a slice of the log holds."""

    next_offset: int
    records: list[_Stored | _Ended] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


@dataclass(slots=True)
class LoadReport:
    records: int = 0
    skipped: int = 0  # of kinds that are not known here
    damaged: int = 0


async def load(
    partition: Partition, state: Machine[Any], executor: Executor | None, slice_bytes: int
) -> LoadReport:
    """Apply everything committed. StorageError: the disk cannot be read."""
    loop = asyncio.get_running_loop()
    report = LoadReport()
    log_ = partition.log
    offset, end = log_.start_offset, partition.limits.for_reader(Reader.BROKER)
    while offset < end.offset:
        try:
            found = log_.read(offset, slice_bytes, end, at_least_one=True)
        except ColdRead as cold:
            await loop.run_in_executor(executor, cold.warm)
            continue
        if found is None:
            _report(partition, report, f"what should be at offset {offset}")
            offset = _next_segment(partition, offset)
            continue
        read = await loop.run_in_executor(executor, _read, found, offset, end.offset)
        for what in read.damaged:
            _report(partition, report, what)
        await _apply(partition, state, read, report)
        # A slice that holds no whole batch, or none that can be read: go on behind it.
        offset = read.next_offset if read.next_offset > offset else _next_segment(partition, offset)
    return report


async def _apply(partition: Partition, state: Machine[Any], read: _Read, report: LoadReport) -> None:
    for number, stored in enumerate(read.records, 1):
        offset = stored[0]
        try:
            if isinstance(stored, _Ended):
                state.transaction_ended(stored.producer_id, committed=stored.committed)
            elif state.apply(stored[1], stored[2], offset, stored[3]):
                report.records += 1
            else:
                report.skipped += 1
        except DecodeError as error:
            _report(partition, report, f"the record at offset {offset}: {error}")
        except Exception as error:
            # Not damaged, but not understood: to go on without it might lose what it said.
            error.add_note(f"at the record with offset {offset}")
            raise
        if number % _APPLIED_AT_ONCE == 0:
            await asyncio.sleep(0)


def _read(found: Slice, from_offset: int, end_offset: int) -> _Read:
    """The records of a slice, in a thread."""
    data = found.file.pread(found.size, found.position)
    read = _Read(from_offset)
    try:
        for position, header in iter_batches(data):
            # Bounded, since a damaged header may say anything.
            read.next_offset = max(read.next_offset, min(header.last_offset + 1, end_offset))
            try:
                check_batch(memoryview(data)[position : position + header.size_bytes], 0)
                read.records += _records_of(header, payload_of(data, position, header), from_offset)
            except ApiError as error:
                read.damaged.append(f"the batch at offset {header.base_offset}: {error}")
    except InvalidBatch as error:
        read.damaged.append(f"behind offset {read.next_offset}: {error}")
        read.next_offset = from_offset
    return read


def _records_of(header: BatchHeader, payload: Buffer, from_offset: int) -> list[_Stored | _Ended]:
    records = [record for record in records_in(header, payload) if record.offset >= from_offset]
    if header.is_control:
        return [
            _Ended(record.offset, header.producer_id, committed)
            for record in records
            if (committed := transaction_end(record.key)) is not None
        ]
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    return [(record.offset, record.key, record.value, producer_id) for record in records]


def _next_segment(partition: Partition, offset: int) -> int:
    """Where to go on when what lies at `offset` cannot be taken apart."""
    for segment in partition.log.segments:
        if segment.base_offset > offset:
            return segment.base_offset
    return partition.high_watermark


def _report(partition: Partition, report: LoadReport, what: str) -> None:
    report.damaged += 1
    logger.error("%s-%d is damaged, and was read without %s", partition.topic, partition.index, what)
