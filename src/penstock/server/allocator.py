"""Memory that was freed is given back to the system, which neither glibc's malloc nor Python does by itself.

What many clients made us hold for a while (unread answers, say) is freed in small pieces, between others that stay: it
would be ours for good. Large blocks are another matter: they are mapped apart, and go when they are freed. Python's own
small objects go by arenas of a megabyte, each when it is empty; the thousands that it keeps for the next who needs one
lie in as many arenas, until a collection lets go of them.
"""

import asyncio
import ctypes
import gc
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

# mallopt: blocks from this size on go back to the system when they are freed, however many there were before, and so
# much may stay at the end of a heap.
_OPTIONS = {-3: 1024 * 1024, -1: 8 * 1024 * 1024}  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
_LOOK_SECONDS = 5.0
# Less is not worth it: for as long as it takes, whoever wants memory waits, about 0.1 ms for each megabyte.
_WORTH_BYTES = 32 * 1024 * 1024
_WORTH_BLOCKS = 250_000
# Worth it when no more of them go for the moment: a fall may have been seen in the midst of it.
_WORTH_BLOCKS_AT_REST = 50_000
_REST_BLOCKS = 5_000
_STATUS = Path("/proc/self/status")


class _Info(ctypes.Structure):
    """`struct mallinfo2`: of ten counts, the ninth is how much is free."""

    _fields_ = [("others", ctypes.c_size_t * 8), ("free_bytes", ctypes.c_size_t), ("top", ctypes.c_size_t)]


class Malloc:
    """The C library's, where it is glibc."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self.is_known = hasattr(self._library, "mallinfo2")  # since glibc 2.33
        if self.is_known:
            self._library.mallinfo2.restype = _Info

    def set_options(self) -> None:
        if hasattr(self._library, "mallopt"):
            for option, value in _OPTIONS.items():
                self._library.mallopt(option, value)

    def anonymous_bytes(self) -> int:
        """Memory of this process that is in no file."""
        return int(_STATUS.read_text().partition("RssAnon:")[2].split()[0]) * 1024

    def free_bytes(self) -> int:
        """Given back or not."""
        return int(self._library.mallinfo2().free_bytes)

    def trim(self) -> None:
        self._library.malloc_trim(0)


class _Use(NamedTuple):
    """How much the process has, how much of that is free in malloc's heaps, and how many of Python's blocks are not."""

    anonymous_bytes: int
    free_bytes: int
    blocks: int


class Allocator:
    """Looks now and then whether the process has grown, or much was freed, since all that was free was given back."""

    def __init__(self, malloc: Malloc, in_thread: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        self._malloc = malloc
        self._in_thread = in_thread
        self._since = _Use(0, 0, 0)
        self._blocks_before = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        use, since = self._use(), self._since
        worth_blocks = self._worth_blocks(use.blocks)
        # What was used again since then has to be given back again.
        self._since = since = _Use(
            min(since.anonymous_bytes, use.anonymous_bytes),
            min(since.free_bytes, use.free_bytes),
            max(since.blocks, use.blocks),
        )
        if (
            use.anonymous_bytes - since.anonymous_bytes >= _WORTH_BYTES
            or use.free_bytes - since.free_bytes >= _WORTH_BYTES
            or since.blocks - use.blocks >= worth_blocks
        ):
            gc.collect()
            await self._in_thread(self._malloc.trim)
            self._since = self._use()

    def _worth_blocks(self, blocks: int) -> int:
        before, self._blocks_before = self._blocks_before, blocks
        return _WORTH_BLOCKS_AT_REST if abs(blocks - before) <= _REST_BLOCKS else _WORTH_BLOCKS

    def _use(self) -> _Use:
        return _Use(self._malloc.anonymous_bytes(), self._malloc.free_bytes(), sys.getallocatedblocks())
