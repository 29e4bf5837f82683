"""One replica of a partition: the log, what of it is committed, and who waits for that to move.

Committed (the high watermark) is what readers may see. With one replica that is what is durable where the topic
asks for `synced` (the default on one node), and what is written where it asks for `written`. With several, it is what
all in-sync replicas have in that way: `leading` knows, on the leader; a follower is told. A producer is answered when
its batch is committed, so an acknowledgement never runs ahead of what it promises.

Who may see how much of that is the matter of its `limits`; whether it is retired, of its `retirement`.
"""

from typing import TYPE_CHECKING, Protocol

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.lease import Lease
from penstock.records.batch import BatchHeader
from penstock.replication.leading import Leading
from penstock.replication.limits import PLENTY, AckWaiter, DataWaiter, Limits, Reader
from penstock.storage.checkpoint import LogEnd, SyncJob
from penstock.storage.log import Log
from penstock.storage.replicated import end_at, find_end
from penstock.storage.segment import Slice

if TYPE_CHECKING:
    from penstock.coordination.nodes import Removed
    from penstock.replication.retirement import Retirement


class Syncer(Protocol):
    """Whoever runs sync jobs in threads; see `GroupCommit`."""

    def request(self, partition: "Partition") -> None: ...


class Partition:
    __slots__ = (
        "_copy_waiters",
        "_syncer",
        "assured_count",
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
        "limits",
        "log",
        "may_be_asked",
        "replica_count",
        "retirement",
        "sync_before_ack",
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
        committed: LogEnd | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.limits = Limits(log, committed)
        self.retirement: Retirement | None = None
        # Between where readers of an earlier partition of this number stopped, and where this one begins.
        self.gap: Removed | None = None
        self.sync_before_ack = sync_before_ack
        self.lease = Lease()  # for whoever changes the log's files
        self.replica_count = self.assured_count = 1  # the second goes without those that only come or go
        self.is_leader = True
        self.is_following = False  # a leader: then consumers may read here, too
        self.in_sync = True  # as the metadata last said
        self.may_be_asked = True  # if nobody leads: in sync, or it was (`controller.election`)
        self.leading: Leading | None = None  # where there are other replicas, and this one leads them
        self.epoch_start = 0  # where the log ended when we began to lead: all of it may have been committed
        self.deletion_waiters: dict[DataWaiter, None] = {}  # for followers to delete what is deleted here
        self._copy_waiters: list[tuple[int, int, AckWaiter]] = []  # (how many in sync, last offset, who)
        self._syncer = syncer

    # -- writing -------------------------------------------------------------------------------------------

    def append(
        self, batch: memoryview, header: BatchHeader, now_ms: int, *, hold: bool = False
    ) -> tuple[int, int]:
        """Store a validated batch; returns its (first, last) offset. A repeat gets the offsets it had.

        With `hold` the caller promises to `write_held` before anyone is answered.
        """
        if self.retirement is not None:
            self.retirement.admit(self, now_ms)
        log = self.log
        if header.base_sequence >= 0:  # a coordinator writes for a producer without one
            repeat = log.find_repeat(header)
            if repeat is not None:
                return repeat.first_offset, repeat.last_offset
        offset = log.append(batch, header, self.leader_epoch, now_ms, hold=hold)
        last_offset = log.end_offset - 1
        if not hold:
            self.write_held()
        return offset, last_offset

    def append_relayed(self, batch: memoryview, header: BatchHeader, now_ms: int) -> tuple[int, int]:
        """The same for a batch that a relay moves here; a repeat gets the offsets of the latest one it moved."""
        if self.retirement is not None:
            self.retirement.begin_at_limit(self, now_ms)
        log = self.log
        if log.failed:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the log is offline after an I/O error")
        relays = log.producers.relays
        source, _ = relays.of(header, batch)
        if source is not None and (position := relays.get(source)) is not None:
            # It remembers that, also when this one takes its place.
            position.is_committed(self.high_watermark)
        repeat = log.producers.check_relayed(header, batch)
        if repeat is not None:
            return repeat.first_offset, repeat.last_offset
        offset = log.append(batch, header, self.leader_epoch, now_ms)
        self.write_held()
        return offset, offset + header.last_offset_delta

    def write_held(self) -> None:
        """Write what was held back, and commit it or have it synced. ApiError when it cannot be written."""
        log = self.log
        try:
            log.write_out()
        except ApiError as error:
            self.sync_failed(str(error))  # the offsets that were given out are void
            raise
        if self.sync_before_ack:
            if not self.lease.is_syncing:
                self._syncer.request(self)
        else:
            if self.leading is None:
                self.limits.move(log.end())
            if log.unsynced_bytes >= WRITE_BACK_BYTES and not self.lease.is_syncing:
                self._syncer.request(self)
        if self.leading is not None:
            self.advance()
            self.limits.wake(Reader.FOLLOWER)

    def is_committed(self, last_offset: int) -> bool:
        return last_offset < self.limits.high_watermark.offset

    def has_copies(self, count: int, last_offset: int) -> bool:
        """Whether so many in-sync replicas, this one included, hold everything up to and with that offset."""
        if self.leading is None:
            return self.is_committed(last_offset)
        return self.leading.count_with(last_offset, self._own_end()) >= count

    def wait_for_copies(self, count: int, last_offset: int, waiter: AckWaiter) -> None:
        if self.leading is None:
            self.limits.wait_for_commit(last_offset, waiter)
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
        if high_watermark > self.high_watermark and (end := find_end(self.log, high_watermark)) is not None:
            self.limits.move(end)
            if leading.tells_at_once:
                self.limits.wake(Reader.FOLLOWER)
        for deletion in list(self.deletion_waiters):
            deletion.advanced(PLENTY)
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
        return not self.log.failed and self._own_end() >= max(self.high_watermark, self.epoch_start)

    def synced(self, job: SyncJob) -> None:
        """A sync job is done: what it covered is durable, and committed where that was all that was missing."""
        self.log.synced(job)
        if self.leading is not None:
            self.advance()
        elif self.is_leader and job.end.offset > self.high_watermark:
            self.limits.move(job.end)

    def sync_failed(self, message: str) -> None:
        self.log.sync_failed()
        self.turn_away(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def turn_away(self, code: ErrorCode, message: str) -> None:
        """Whoever waits for an acknowledgement gets none."""
        waiters = self.limits.turn_away()
        copies, self._copy_waiters = self._copy_waiters, []
        for waiter in (*waiters, *(copy_waiter for _, _, copy_waiter in copies)):
            waiter.failed(code, message)

    def replace_log(self, log: Log) -> None:
        """The log was opened anew: offsets that somebody still waits for may mean something else. Not for a leader."""
        self.limits.replace_log(log)  # first: this reads, and where that fails nothing has changed yet
        self.sync_failed("the log was opened again after an I/O error")
        log.producers.in_place_of(self.log.producers)
        self.log.close()
        self.log, self.epoch_start = log, min(self.epoch_start, log.end_offset)

    def wake_readers(self) -> None:
        """Let whoever waits for data look again, and see that it is not to be had here any more."""
        self.limits.wake(*Reader)
        for deletion in list(self.deletion_waiters):
            deletion.advanced(PLENTY)

    def set_sync_before_ack(self, value: bool) -> None:
        """`penstock.ack.after` changed while running."""
        self.sync_before_ack = value
        self.advance()
        if value and self.log.unsynced_bytes:
            self._syncer.request(self)
        elif not value and self.is_leader and self.leading is None and not self.log.failed:
            self.limits.move(self.log.end())

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
        else:
            self._lead_alone()
        if self.sync_before_ack and self.log.unsynced_bytes and not self.lease.is_syncing:
            self._syncer.request(self)

    def _lead_alone(self) -> None:
        # Copies are nowhere else any more, so nobody will count them: whoever waits for some waits for the commit.
        copies, self._copy_waiters = self._copy_waiters, []
        waiting = [(last_offset, waiter) for _, last_offset, waiter in copies]
        if waiting:
            self.limits.wait_among(waiting)
        if not self.sync_before_ack and not self.log.failed:
            self.limits.move(self.log.end())
        elif self.log.synced_end.offset > self.high_watermark:
            # Never back: followers may have made more of it committed than is durable here.
            self.limits.move(self.log.synced_end)

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
        if offset > self.high_watermark:
            self.limits.move(end_at(self.log, offset))

    # -- reading -------------------------------------------------------------------------------------------

    def read(
        self, offset: int, size_max: int, *, at_least_one: bool, reader: Reader = Reader.READ_UNCOMMITTED
    ) -> Slice | None:
        """Batches from `offset` on that a consumer may see; ApiError when it is not a place in this log."""
        log, limit = self.log, self.limits.for_reader(reader)
        if not log.start_offset <= offset <= limit.offset:
            offset = self._place_of(offset)
        return log.read(offset, size_max, limit, at_least_one=at_least_one)

    def in_gap(self, offset: int) -> bool:
        """Whether a reader stands where nothing ever was for it, before the first record of this log."""
        gap, start = self.gap, self.log.start_offset
        return gap is not None and gap.limit <= offset < start == gap.end

    def _place_of(self, offset: int) -> int:
        """Where a reader goes on, or waits, who stands outside of what it may see. ApiError: there is no such place."""
        start, retirement = self.log.start_offset, self.retirement
        if self.in_gap(offset):
            if retirement is None:
                return start
            offset = start
        if retirement is not None:
            # Its end stays a place when all before it is gone.
            places = range(min(start, retirement.limit), retirement.limit + 1)
        else:
            # Not committed as far as we know, perhaps: a new leader does not know all of it yet.
            places = range(start, (self.epoch_start if self.leading is None else self.log.end_offset) + 1)
        if offset not in places:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return offset

    @property
    def knows_its_end(self) -> bool:
        """Whether all that a leader before us may have shown is committed here."""
        return self.high_watermark >= self.epoch_start

    def check_behind(self, offset: int) -> None:
        """Whether a consumer may read here, or wait, although another broker leads: ApiError sends it there.

        "Out of range" is the leader's to say: we may have less than it has. Nor is a reader kept waiting where more
        may be long in coming.
        """
        log = self.log
        if not self.lease.is_cutting and not log.is_incomplete:
            if log.start_offset <= offset < self.high_watermark:
                return
            if self.in_sync and log.start_offset <= offset <= log.end_offset:
                return
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)

    @property
    def waiting_producers(self) -> int:
        return self.limits.waiting_for_commit + len(self._copy_waiters)

    @property
    def high_watermark(self) -> int:
        return self.limits.high_watermark.offset

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


# Without a promise to sync, bytes still go to disk once this many gather: the kernel must never find so much dirty
# memory that it makes our writes wait.
WRITE_BACK_BYTES = 32 * 1024 * 1024
