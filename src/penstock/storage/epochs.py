"""Which leader epoch wrote which offsets: a short ascending list of (epoch, first offset written under it).

Each batch carries its epoch, so where no batch is missing the list can be rebuilt from them. Compaction may take the
first records of an epoch, or all: then only a list tells where it began. Too late a start is a loss: whoever returns
with records of the epoch before, which nobody else has, would be told to keep them. So a follower that comes to a gap
asks its leader, and what it is told is in the file before any record behind the gap is in the log.

An epoch has one leader and so one start, and one history before it: wherever a list has the epoch of a batch, what that
list says of the epochs before is true of the batch, too.
"""

from bisect import bisect_right
from collections.abc import Sequence

from penstock.core.crc32c import crc32c
from penstock.core.errors import StorageError
from penstock.core.formats import check_version

UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1
_FILE_VERSION = 0


class EpochHistory:
    __slots__ = ("_epochs", "_starts", "latest")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNKNOWN_EPOCH  # the last of them, at hand for every append

    def __len__(self) -> int:
        return len(self._epochs)

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """The first batch of a new epoch is about to be written at `start_offset`."""
        if epoch <= self.latest:
            return
        # Entries that begin at or behind this offset wrote nothing that is still there.
        while self._starts and self._starts[-1] >= start_offset:
            self._pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch

    def _pop(self) -> None:
        self._starts.pop()
        self._epochs.pop()
        self.latest = self._epochs[-1] if self._epochs else UNKNOWN_EPOCH

    def cross_gap(self, told: Sequence[tuple[int, int]], epoch: int, gap: range) -> bool:
        """A batch of `epoch` comes next, behind a gap: note where it and those before it began, by a list of them all.

        False: the list knows nothing of that epoch.
        """
        if all(known != epoch for known, _ in told):
            return False
        for known, start in told:
            if known <= epoch:
                self.assign(known, min(max(start, gap.start), gap.stop))
        return True

    def copy(self) -> "EpochHistory":
        made = EpochHistory()
        made._epochs, made._starts = list(self._epochs), list(self._starts)
        made.latest = self.latest
        return made

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(the largest known epoch at or below `epoch`, where the next one begins), as OffsetForLeaderEpoch asks."""
        if epoch < 0 or epoch > self.latest:
            return UNKNOWN_EPOCH, UNKNOWN_OFFSET
        if epoch == self.latest:
            return epoch, log_end
        at = bisect_right(self._epochs, epoch)
        if at == 0:
            # Older than all we know: the log's first known epoch begins where the asked one ended.
            return epoch, self._starts[0]
        return self._epochs[at - 1], self._starts[at]

    def epoch_at(self, offset: int) -> int:
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else UNKNOWN_EPOCH

    def truncate_from(self, offset: int) -> None:
        """The log now ends at `offset`."""
        while self._starts and self._starts[-1] >= offset:
            self._pop()

    def forget_after(self, epoch: int) -> None:
        """Nothing that later epochs wrote is known to be there."""
        while self._epochs and self._epochs[-1] > epoch:
            self._pop()

    def advance_start(self, offset: int) -> None:
        """The log now starts at `offset`: of what was before only the last record's epoch is still known.

        That one tells of which log this is the rest: without it a log that begins where another one ends, with records
        of a later epoch, would seem to be its continuation.
        """
        before = offset - 1
        at = bisect_right(self._starts, before) - 1
        if at > 0:
            del self._starts[:at], self._epochs[:at]
        if at >= 0:
            self._starts[0] = before

    def dump(self) -> bytes:
        lines = [str(_FILE_VERSION), str(len(self._epochs))]
        lines += [f"{epoch} {start}" for epoch, start in self.entries()]
        text = ("\n".join(lines) + "\n").encode()
        return text + b"crc32c %08x\n" % crc32c(text)

    @classmethod
    def parse(cls, data: bytes) -> "EpochHistory":
        history = cls()
        text, _, checksum = data.rpartition(b"crc32c ")
        try:
            if int(checksum, 16) != crc32c(text):
                raise ValueError("wrong checksum")
            version, count, *lines = text.decode().split("\n")
            check_version("the leader-epoch checkpoint", int(version), _FILE_VERSION)
            pairs = [tuple(map(int, line.split())) for line in lines if line]
            if int(count) != len(pairs):
                raise ValueError("wrong count")
            for epoch, start in pairs:
                history._epochs.append(epoch)
                history._starts.append(start)
                history.latest = epoch
        except ValueError as error:
            raise StorageError(f"unreadable leader-epoch checkpoint: {error}") from error
        return history
