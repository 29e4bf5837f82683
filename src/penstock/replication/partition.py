"""One replica of a partition: the log, what of it is committed, and who waits for that to move.

Committed (the high watermark) is what readers may see. With one replica that is what is durable where the topic
asks for `synced` (the default on one node), and what is written where it asks for `written`. With several, it is what
all in-sync replicas have in that way: `leading` knows, on the leader; a follower is told. A producer is answered when
its batch is committed, so an acknowledgement never runs ahead of what it promises.

Readers go by `readable`, which is what is committed, but for a retired partition (`replication.inlet`).
"""

from collections import deque
from typing import TYPE_CHECKING, Protocol

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.lease import Lease
from penstock.records.batch import BatchHeader
from penstock.records.relay import relayed_by
from penstock.replication.leading import Leading
from penstock.storage.checkpoint import LogEnd, SyncJob
from penstock.storage.log import Log
from penstock.storage.replicated import end_at, find_end
from penstock.storage.segment import Slice

if TYPE_CHECKING:
    from penstock.coordination.nodes import Removed
    from penstock.replication.inlet import Retirement


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
        "_copy_waiters",
        "_syncer",
        "assured_count",
        "committed",
        "data_waiters",
        "deletion_waiters",
        "epoch_start",
        "gap",
        "in_sync",
        "index",
        "is_following",
        "is_leader",
        "leader_epoch",
        "leading",
        "lease",
        "log",
        "readable",
        "replica_count",
        "replica_waiters",
        "retirement",
        "sync_before_ack",
        "sync_running",
        "topic",
        "topic_id",
        "truncating",
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
        self.committed = self.readable = log.end()
        self.retirement: Retirement | None = None  # of an `Inlet`
        # Between where readers of an earlier partition of this number stopped, and where this one begins.
        self.gap: Removed | None = None
        self.sync_before_ack = sync_before_ack
        self.sync_running = False
        self.lease = Lease()  # what works on the log's files: nobody may open, move or cut it meanwhile
        self.replica_count = self.assured_count = 1  # the second goes without those that only come or go
        self.truncating = False  # while a thread cuts the log's end off: nobody else may change it
        self.is_leader = True
        self.is_following = False  # a leader: then consumers may read here, too
        self.in_sync = True  # as the metadata last said
        self.leading: Leading | None = None  # where there are other replicas, and this one leads them
        self.epoch_start = 0  # where the log ended when we began to lead: all of it may have been committed
        self.data_waiters: dict[DataWaiter, None] = {}  # a dict for its order: the simulation repeats exactly
        self.replica_waiters: dict[DataWaiter, None] = {}  # followers, who wait for what is not committed yet
        self.deletion_waiters: dict[DataWaiter, None] = {}  # for followers to delete what is deleted here
        self._copy_waiters: list[tuple[int, int, AckWaiter]] = []  # (how many in sync, last offset, who)
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
        if header.base_sequence >= 0:  # a coordinator writes for a producer without one
            repeat = log.find_repeat(header)
            if repeat is not None:
                return repeat.first_offset, repeat.last_offset
        offset = log.append(batch, header, self.leader_epoch, now_ms, hold=hold)
        last_offset = log.end_offset - 1
        if not hold:
            self.settle()
        return offset, last_offset

    def append_relayed(self, batch: memoryview, header: BatchHeader, now_ms: int) -> tuple[int, int]:
        """The same for a batch that a relay moves here; a repeat gets the offsets of the latest one it moved."""
        log = self.log
        if log.failed:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the log is offline after an I/O error")
        word = log.producers.relays.get(relayed_by(header).source)
        if word is not None:
            word.is_committed(self.committed.offset)  # it remembers that, also when this one takes its place
        repeat = log.producers.check_relayed(header)
        if repeat is not None:
            return repeat.first_offset, repeat.last_offset
        offset = log.append(batch, header, self.leader_epoch, now_ms)
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
            if self.leading is None:
                self._commit(log.end())
            if log.unsynced_bytes >= WRITE_BACK_BYTES and not self.sync_running:
                self._syncer.request(self)
        if self.leading is not None:
            self.advance()
            for waiter in list(self.replica_waiters):
                waiter.advanced(_PLENTY)

    def is_committed(self, last_offset: int) -> bool:
        return last_offset < self.committed.offset

    def wait_for_commit(self, last_offset: int, waiter: AckWaiter) -> None:
        self._ack_waiters.append((last_offset, waiter))

    def has_copies(self, count: int, last_offset: int) -> bool:
        """Whether so many in-sync replicas, this one included, hold everything up to and with that offset."""
        if self.leading is None:
            return self.is_committed(last_offset)
        return self.leading.count_with(last_offset, self._own_end()) >= count

    def wait_for_copies(self, count: int, last_offset: int, waiter: AckWaiter) -> None:
        if self.leading is None:
            self.wait_for_commit(last_offset, waiter)
        else:
            self._copy_waiters.append((count, last_offset, waiter))

    @property
    def low_watermark(self) -> int:
        """What lies below it is deleted, whoever leads next; -1 while that cannot be told."""
        start = self.log.start_offset
        return start if self.leading is None else self.leading.lowest_start(start)

    def advance(self) -> None:
        """Something moved that may let the high watermark move: our own end, a follower's, or who is in sync."""
        leading = self.leading
        if leading is None:
            return
        high_watermark = leading.high_watermark(self._own_end())
        # Where the disk does not say what place that is, the next fetch of a follower asks again.
        if high_watermark > self.committed.offset and (end := find_end(self.log, high_watermark)) is not None:
            self._commit(end)
            if leading.tells_at_once:
                for fetch in list(self.replica_waiters):
                    fetch.advanced(_PLENTY)
        for deletion in list(self.deletion_waiters):
            deletion.advanced(_PLENTY)
        if self._copy_waiters:
            waiting, self._copy_waiters = self._copy_waiters, []
            for count, last_offset, waiter in waiting:
                if self.has_copies(count, last_offset):
                    waiter.committed()
                else:
                    self._copy_waiters.append((count, last_offset, waiter))

    def _own_end(self) -> int:
        # A log that failed has given out offsets, perhaps, of what it could not write.
        is_sure = not self.sync_before_ack and not self.log.failed
        return self.log.end_offset if is_sure else self.log.synced_end.offset

    @property
    def vouches(self) -> bool:
        """Whether all that may be committed is here, as durable as the topic wants it; not in a log that failed."""
        return not self.log.failed and self._own_end() >= max(self.committed.offset, self.epoch_start)

    def _commit(self, end: LogEnd) -> None:
        before = self.committed
        self.committed = self.readable = end
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
        if self.leading is not None:
            self.advance()
        elif self.is_leader and job.end.offset > self.committed.offset:
            self._commit(job.end)

    def sync_failed(self, message: str) -> None:
        self.log.sync_failed()
        self.turn_away(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def turn_away(self, code: ErrorCode, message: str) -> None:
        """Whoever waits for an acknowledgement gets none."""
        waiters, self._ack_waiters = self._ack_waiters, deque()
        copies, self._copy_waiters = self._copy_waiters, []
        for waiter in (*(one for _, one in waiters), *(one for _, _, one in copies)):
            waiter.failed(code, message)

    def replace_log(self, log: Log) -> None:
        """The log was opened anew: offsets that somebody still waits for may mean something else. Not for a leader."""
        # First: this reads, and where that fails nothing has changed yet.
        committed = end_at(log, min(self.committed.offset, log.end_offset))
        self.sync_failed("the log was opened again after an I/O error")
        self.log.close()
        self.log, self.epoch_start = log, min(self.epoch_start, log.end_offset)
        self.note_committed(committed)

    def retire(self) -> None:
        """The topic was deleted: nobody waits here any longer."""
        self.turn_away(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        self.wake_readers()

    def wake_readers(self) -> None:
        """Let whoever waits for data look again, and see that it is not to be had here any more."""
        for reader in (*self.data_waiters, *self.replica_waiters, *self.deletion_waiters):
            reader.advanced(_PLENTY)

    def set_sync_before_ack(self, value: bool) -> None:
        """`penstock.ack.after` changed while running."""
        self.sync_before_ack = value
        self.advance()
        if value and self.log.unsynced_bytes:
            self._syncer.request(self)
        elif not value and self.is_leader and self.leading is None and not self.log.failed:
            self._commit(self.log.end())

    # -- leading and following -----------------------------------------------------------------------------

    def lead(self, epoch: int, leading: Leading | None) -> None:
        """Begin to lead under this epoch; without `leading` there is no other replica."""
        self.leader_epoch = epoch
        self.leading = leading
        self.epoch_start = self.log.end_offset
        self.is_leader, self.is_following = True, False
        if leading is not None:
            # Known from the beginning, so that followers see where this epoch parts from what they have.
            self.log.epochs.assign(epoch, self.log.end_offset)
            self.advance()
        elif not self.sync_before_ack and not self.log.failed:
            self._commit(self.log.end())
        elif self.log.synced_end.offset > self.committed.offset:
            # Never back: followers may have made more of it committed than is durable here.
            self._commit(self.log.synced_end)
        if self.sync_before_ack and self.log.unsynced_bytes and not self.sync_running:
            self._syncer.request(self)

    def stand_back(self, epoch: int) -> None:
        """Another one leads, or nobody: what was not committed may come to nothing.

        Readers are woken by the caller, once they cannot find it here any more: they might wait beyond what is known
        to be committed, which only a leader can tell from an offset that never was.
        """
        led, self.is_leader, self.is_following = self.is_leader, False, False
        self.leader_epoch = epoch
        self.leading, self.epoch_start = None, 0
        if led:
            self.turn_away(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads the partition now")

    def told_committed(self, offset: int) -> None:
        """The leader's high watermark, as a follower hears of it."""
        offset = min(offset, self.log.end_offset)
        if offset > self.committed.offset:
            self._commit(end_at(self.log, offset))

    def note_committed(self, end: LogEnd) -> None:
        """This is committed, whatever was before; nobody waits for it."""
        self.committed = self.readable = end

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, offset: int, size_max: int, *, at_least_one: bool) -> Slice | None:
        """Committed batches from `offset` on; ApiError when it is not a place in this log."""
        committed = self.committed
        if not self.log.start_offset <= offset <= committed.offset:
            if self.in_gap(offset):
                offset = self.log.start_offset
            else:
                self._check_place(offset)
        return self.log.read(offset, size_max, committed, at_least_one=at_least_one)

    def in_gap(self, offset: int) -> bool:
        """Whether a reader stands where nothing ever was for it, before the first record of this log."""
        gap, start = self.gap, self.log.start_offset
        return gap is not None and gap.limit <= offset < start == gap.end

    def _check_place(self, offset: int) -> None:
        """An offset that is not committed as far as we know: there is none, or a new leader does not know it yet."""
        end = self.epoch_start if self.leading is None else self.log.end_offset
        if not self.log.start_offset <= offset <= end:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)

    @property
    def knows_its_end(self) -> bool:
        """Whether all that a leader before us may have shown is committed here."""
        return self.committed.offset >= self.epoch_start

    def check_behind(self, offset: int) -> None:
        """Whether a consumer may read here, or wait, although another broker leads: ApiError sends it there.

        "Out of range" is the leader's to say: we may have less than it has. Nor is a reader kept waiting where more
        may be long in coming.
        """
        log = self.log
        if not self.truncating:
            if log.start_offset <= offset < self.committed.offset:
                return
            if self.in_sync and log.start_offset <= offset <= log.end_offset:
                return
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)

    @property
    def waiting_producers(self) -> int:
        return len(self._ack_waiters) + len(self._copy_waiters)

    @property
    def high_watermark(self) -> int:
        return self.committed.offset

    def check_leader_epoch(self, epoch: int) -> None:
        """A client that knows another leader epoch must refresh (ours is newer) or wait (ours is older)."""
        if 0 <= epoch != self.leader_epoch:
            is_older = epoch < self.leader_epoch
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def diverging(self, epoch: int, offset: int) -> tuple[int, int] | None:
        """Where a reader that last saw `epoch` before `offset` has left our history; None while it has not."""
        if epoch < 0:
            return None
        end_epoch, end_offset = self.log.epochs.end_of(epoch, self.log.end_offset)
        if end_epoch < epoch or end_offset < offset:
            return end_epoch, end_offset
        return None


# To a waiter: look, however much you are waiting for.
_PLENTY = 0x7FFFFFFF

# Without a promise to sync, bytes still go to disk once this many gather: the kernel must never find so much dirty
# memory that it makes our writes wait.
WRITE_BACK_BYTES = 32 * 1024 * 1024
