"""One partition as its leader sees it: the log, what of it is committed, and who waits for that to move.

Committed (the high watermark) is what readers may see. With one replica that is what is durable where the topic
asks for `synced` (the default on one node), and what is written where it asks for `written`. A producer is answered
when its batch is committed, so an acknowledgement never runs ahead of what it promises.
"""

from collections import deque
from typing import TYPE_CHECKING, Protocol

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.records.batch import BatchHeader
from penstock.storage.checkpoint import LogEnd, SyncJob
from penstock.storage.log import Log
from penstock.storage.segment import Slice

if TYPE_CHECKING:
    import asyncio


class AckWaiter(Protocol):
    """A produce request that waits for its batch to be committed."""

    def committed(self) -> None: ...
    def failed(self, code: ErrorCode, message: str) -> None: ...


class DataWaiter(Protocol):
    """A fetch request that waits for more to read."""

    def advanced(self, added_bytes: int) -> None: ...


class Syncer(Protocol):
    """Whoever runs sync jobs in threads; see `GroupCommit`."""

    def request(self, partition: "Partition") -> None: ...


class Partition:
    __slots__ = (
        "_ack_waiters",
        "_syncer",
        "committed",
        "data_waiters",
        "index",
        "leader_epoch",
        "log",
        "swapping",
        "sync_before_ack",
        "sync_running",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        leader_epoch: int,
        syncer: Syncer,
        *,
        sync_before_ack: bool,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.committed = log.end()
        self.sync_before_ack = sync_before_ack
        self.sync_running = False
        # While compaction exchanges files of the log: nobody else may open, move or cut it meanwhile.
        self.swapping: asyncio.Future[None] | None = None
        self.data_waiters: dict[DataWaiter, None] = {}  # a dict for its order: the simulation repeats exactly
        self._ack_waiters: deque[tuple[int, AckWaiter]] = deque()
        self._syncer = syncer

    # -- writing -------------------------------------------------------------------------------------------

    def append(
        self, batch: memoryview, header: BatchHeader, now_ms: int, *, hold: bool = False
    ) -> tuple[int, int]:
        """Store a validated batch; returns its (first, last) offset. A repeat gets the offsets it had.

        With `hold` the caller promises to `settle` before anyone is answered.
        """
        log = self.log
        if header.producer_id >= 0:
            repeat = log.find_repeat(header)
            if repeat is not None:
                return repeat.first_offset, repeat.last_offset
        offset = log.append(batch, header, self.leader_epoch, now_ms, hold=hold)
        if not hold:
            self.settle()
        return offset, offset + header.last_offset_delta

    def settle(self) -> None:
        """Write what was held back, and commit it or have it synced. ApiError when it cannot be written."""
        log = self.log
        try:
            log.write_out()
        except ApiError as error:
            self.sync_failed(str(error))  # the offsets that were given out are void
            raise
        if self.sync_before_ack:
            if not self.sync_running:
                self._syncer.request(self)
        else:
            self._commit(log.end())
            if log.unsynced_bytes >= WRITE_BACK_BYTES and not self.sync_running:
                self._syncer.request(self)

    def is_committed(self, last_offset: int) -> bool:
        return last_offset < self.committed.offset

    def wait_for_commit(self, last_offset: int, waiter: AckWaiter) -> None:
        self._ack_waiters.append((last_offset, waiter))

    def _commit(self, end: LogEnd) -> None:
        before = self.committed
        self.committed = end
        waiters = self._ack_waiters
        while waiters and waiters[0][0] < end.offset:
            waiters.popleft()[1].committed()
        if self.data_waiters:
            same_segment = end.segment == before.segment
            added = end.position - before.position if same_segment else end.position
            for waiter in list(self.data_waiters):
                waiter.advanced(added)

    def synced(self, job: SyncJob) -> None:
        """A sync job is done: what it covered is durable, and committed where that was all that was missing."""
        self.log.synced(job)
        if job.end.offset > self.committed.offset:
            self._commit(job.end)

    def sync_failed(self, message: str) -> None:
        self.log.sync_failed()
        waiters, self._ack_waiters = self._ack_waiters, deque()
        for _, waiter in waiters:
            waiter.failed(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def replace_log(self, log: Log) -> None:
        """The log was opened anew after an I/O error: offsets that somebody still waits for may mean something else."""
        self.sync_failed("the log was opened again after an I/O error")
        self.log.close()
        self.log = log
        self.committed = log.end()

    def retire(self) -> None:
        """The topic was deleted: nobody waits here any longer."""
        waiters, self._ack_waiters = self._ack_waiters, deque()
        for _, waiter in waiters:
            waiter.failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        for reader in list(self.data_waiters):
            reader.advanced(0x7FFFFFFF)

    def set_sync_before_ack(self, value: bool) -> None:
        """`penstock.ack.after` changed while running."""
        self.sync_before_ack = value
        if not value:
            self._commit(self.log.end())
        elif self.log.unsynced_bytes:
            self._syncer.request(self)

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, offset: int, size_max: int, *, at_least_one: bool) -> Slice | None:
        """Committed batches from `offset` on; ApiError when it is not a place in this log."""
        committed = self.committed
        if offset > committed.offset or offset < self.log.start_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return self.log.read(offset, size_max, committed, at_least_one=at_least_one)

    @property
    def waiting_producers(self) -> int:
        return len(self._ack_waiters)

    @property
    def high_watermark(self) -> int:
        return self.committed.offset

    def check_leader_epoch(self, epoch: int) -> None:
        """A client that knows another leader epoch must refresh (ours is newer) or wait (ours is older)."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def diverging(self, epoch: int, offset: int) -> tuple[int, int] | None:
        """Where a reader that last saw `epoch` before `offset` has left our history; None while it has not."""
        if epoch < 0:
            return None
        end_epoch, end_offset = self.log.epochs.end_of(epoch, self.log.end_offset)
        if end_epoch < epoch or end_offset < offset:
            return end_epoch, end_offset
        return None


# Without a promise to sync, bytes still go to disk once this many gather: the kernel must never find so much dirty
# memory that it makes our writes wait.
WRITE_BACK_BYTES = 32 * 1024 * 1024
