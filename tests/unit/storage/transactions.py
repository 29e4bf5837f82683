"""Transactional batches and markers for tests, and what a log should know of them."""

from collections.abc import Sequence
from typing import NamedTuple

from tests.unit.storage.logs import NOW_MS, append

from penstock.records.builder import BatchBuilder, BatchOptions
from penstock.records.control import Marker, marker_batch
from penstock.storage.log import Log
from penstock.storage.segment import ColdRead


def transactional(producer: tuple[int, int, int], count: int = 1, *, padding: int = 0) -> bytearray:
    """`producer` is (id, epoch, first sequence)."""
    producer_id, epoch, sequence = producer
    options = BatchOptions(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    builder = BatchBuilder(options)
    for number in range(count):
        builder.append(b"%d" % number + b"." * padding, key=b"k", timestamp=NOW_MS)
    return builder.build()


def marker(producer_id: int, epoch: int, *, committed: bool, coordinator: int = 0) -> bytearray:
    return marker_batch(producer_id, epoch, Marker(committed, coordinator), NOW_MS)


def end(log: Log, producer_id: int, *, committed: bool) -> int:
    return append(log, marker(producer_id, 0, committed=committed))


class Written(NamedTuple):
    offset: int
    next_offset: int
    producer_id: int  # -1: of no transaction
    committed: bool | None  # None: no marker


class Transaction(NamedTuple):
    producer_id: int
    first: int
    marker: int | None
    committed: bool


def transactions_of(written: Sequence[Written]) -> list[Transaction]:
    """By the definition: from a producer's first batch to the next marker of its own."""
    found, open_ = [], {}
    for batch in written:
        if batch.producer_id < 0:
            continue
        if batch.committed is None:
            open_.setdefault(batch.producer_id, batch.offset)
        elif batch.producer_id in open_:
            first = open_.pop(batch.producer_id)
            found.append(Transaction(batch.producer_id, first, batch.offset, batch.committed))
    return found + [Transaction(producer_id, first, None, False) for producer_id, first in open_.items()]


def aborted_in(log: Log, first: int, stop: int) -> list[tuple[int, int]]:
    """As a reader gets them, having the disk read where that is needed."""
    row = log.row
    for _ in range(100):
        try:
            return row.aborted.between(first, stop, row.rebuild_aborted)
        except ColdRead as cold:
            cold.warm()
    raise AssertionError("still cold after a hundred reads")
