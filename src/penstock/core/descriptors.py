"""How many descriptors segment files may take, and which of them is closed when another one is needed.

A process has a fixed number of descriptors (RLIMIT_NOFILE) and any number of partitions. So no segment has a right to
an open file: it opens it when it is used, and the one that was not used for longest is closed for it. What is closed is
only the segment's own hold. Whoever works with a file has it as an object, in a thread or in an answer that waits for
its socket, and the descriptor goes with the last of them: no number is ever taken from under a read. Such files are
remembered, weakly: when a log is closed they give nothing any more (`revoke`), for what stands in them may change.

A file with bytes that no sync covers stays open (`pin`): the kernel tells of a write that failed to those who had the
file open then, and might tell nobody who opens it later.

A client that is slow to read keeps files open, too, until its answers have gone. So answers may hold no more than a
share of them (`lendable`), and what is read beyond that is copied, in small portions.

Called from the loop and from threads; nothing here waits for a disk with the lock in hand.
"""

import logging
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import ref

from penstock.core.errors import TooManyFilesError
from penstock.core.limits import CONNECTION_DESCRIPTORS, LENT_FILES_SHARE, OTHER_DESCRIPTORS

if TYPE_CHECKING:
    from penstock.core.files import File

logger = logging.getLogger(__name__)

# Files that were used since they were last looked at get another chance, but nobody looks for longer than this.
_CHANCES = 64
# Closed at most to make room for one, while there is some.
_CLOSED_FOR_ONE = 4
# Closed together when the system has no descriptor left.
_CLOSED_AT_ONCE = 16


class Holder(Protocol):
    """A segment, as far as its file goes."""

    handle: "File | None"
    former: "tuple[Callable[[], File | None], ...]"  # that it had before, and that others may still have
    used: bool  # since it was last looked at
    unsynced: bool  # it is pinned


class Shares(NamedTuple):
    """Who may have how many of a process's descriptors."""

    files: int
    connections: int

    @classmethod
    def of(cls, limit: int) -> "Shares":
        """A third for segment files, the rest for clients and for what a broker needs besides."""
        left = limit - min(OTHER_DESCRIPTORS, limit // 4)
        files = max(left // 3, 1)
        return cls(files, max((left - files) // CONNECTION_DESCRIPTORS, 1))

    @classmethod
    def of_process(cls) -> "Shares":
        return cls.of(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def raise_limit() -> None:
    """Take as many descriptors as the system lets this process have."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Descriptors:
    def __init__(self, shares: Shares) -> None:
        self.files_max, self.connections_max = shares
        self.live: set[int] = set()  # every file that is open, whoever has it
        self.unsynced = 0
        self.refused = 0
        self.lent = 0  # slices in answers that wait for others, or for their client
        self._idle: OrderedDict[int, ref[Holder]] = OrderedDict()  # by id; the next to be closed first
        self._lock = threading.Lock()
        # Called on the loop, whenever one more is pinned while they are nearly all.
        self.on_pressed: Callable[[], None] | None = None

    def open(self, holder: Holder, opened: Callable[[], "File"]) -> "File":
        """The holder's file; `opened` opens it. TooManyFilesError when all that may be open is in use."""
        self._make_room()
        file = opened()
        with self._lock:
            if holder.handle is None:
                holder.handle = file
                self._shelve(holder)
            return holder.handle

    def pin(self, holder: Holder) -> None:
        """It is written to: its file stays open until `unpin`. On the loop."""
        with self._lock:
            if holder.unsynced:
                return
            holder.unsynced = True
            self.unsynced += 1
            self._idle.pop(id(holder), None)
        if self.on_pressed is not None and self.pressed:
            self.on_pressed()

    def unpin(self, holder: Holder) -> None:
        with self._lock:
            if holder.unsynced:
                holder.unsynced = False
                self.unsynced -= 1
                self._shelve(holder)

    def forget(self, holder: Holder) -> None:
        """It keeps what it has, to the end of its life: its names may be another's from now on."""
        with self._lock:
            self._idle.pop(id(holder), None)
            if holder.unsynced:
                holder.unsynced = False
                self.unsynced -= 1

    def revoke(self, holder: Holder) -> None:
        """It has no file any more, and who else has one of its files reads nothing more from it."""
        self.forget(holder)
        with self._lock:
            files = [holder.handle, *(reference() for reference in holder.former)]
            holder.handle, holder.former = None, ()
        for file in files:
            if file is not None:
                file.revoke()

    @property
    def pressed(self) -> bool:
        """Whether so much waits to be synced that it should be, before nothing can be closed any more."""
        return self.unsynced * 2 > self.files_max

    @property
    def lendable(self) -> int:
        """Large slices that one more answer may have: half of what is left of the share, so that others find some."""
        left = int(self.files_max * LENT_FILES_SHARE) - self.lent
        return (left + 1) // 2 if left > 0 else 0

    def close_some(self) -> bool:
        """The system has no descriptor left: whether closing some may have helped."""
        before = len(self.live)
        with self._lock:
            for _ in range(_CLOSED_AT_ONCE):
                self._close_one()
        return len(self.live) < before

    def _make_room(self) -> None:
        """From some way below the limit on: what was closed may still be in use, and go only a little later."""
        wanted = _CLOSED_FOR_ONE
        while len(self.live) >= self.files_max - self.files_max // 4:
            is_full = len(self.live) >= self.files_max
            with self._lock:
                if (wanted or is_full) and self._close_one():
                    wanted = max(wanted - 1, 0)
                    continue
            if not is_full:
                return
            self.refused += 1
            problem = (
                f"all {self.files_max} files that may be open at once are in use: raise the limit (ulimit -n)"
            )
            logger.warning("a file is not opened: %s; %d wait to be synced", problem, self.unsynced)
            raise TooManyFilesError(problem)

    def _shelve(self, holder: Holder) -> None:
        if holder.handle is not None and not holder.unsynced:
            self._idle[id(holder)] = ref(holder)
            self._idle.move_to_end(id(holder))

    def _close_one(self) -> bool:
        """Take the file of the one that was not used for longest; False when there is none."""
        chances = _CHANCES
        while self._idle:
            key, known = self._idle.popitem(last=False)
            holder = known()
            if holder is None or holder.handle is None:
                continue
            if holder.used and chances:
                holder.used = False
                chances -= 1
                self._idle[key] = known
                continue
            holder.former = (
                *(reference for reference in holder.former if reference() is not None),
                ref(holder.handle),
            )
            holder.handle = None
            return True
        return False
