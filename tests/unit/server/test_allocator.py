"""Memory that clients made us take is given back when they are done, and not again and again."""

import ctypes
from collections.abc import Callable

import pytest

from penstock.server.allocator import Allocator, Malloc

MEGABYTE = 1024 * 1024


class CountedMalloc(Malloc):
    def __init__(self) -> None:
        super().__init__()
        self.anonymous = self.free = 0  # in megabytes
        self.trims = 0

    def anonymous_bytes(self) -> int:
        return self.anonymous * MEGABYTE

    def free_bytes(self) -> int:
        return self.free * MEGABYTE

    def trim(self) -> None:
        self.trims += 1


async def at_once(work: Callable[[], None]) -> None:
    work()


@pytest.mark.parametrize("grows", ["anonymous", "free"])
async def test_it_is_given_back_once_and_again_when_it_was_used_again(grows: str) -> None:
    malloc = CountedMalloc()
    allocator = Allocator(malloc, at_once)
    trims = []
    # Little; much; the same, given back by now; less; much again; a little more; as much more.
    for megabytes in (20, 200, 200, 10, 200, 220, 300):
        setattr(malloc, grows, megabytes)
        await allocator.look()
        trims.append(malloc.trims)
    assert trims == [0, 1, 1, 1, 2, 2, 3]


async def test_it_is_given_back_when_many_small_objects_went() -> None:
    malloc = CountedMalloc()
    allocator = Allocator(malloc, at_once)
    many = [bytes(100 + number % 50) for number in range(400_000)]
    await allocator.look()
    assert not malloc.trims
    many.clear()
    await allocator.look()
    assert malloc.trims == 1


async def test_a_fall_that_was_seen_in_its_midst_is_looked_at_again_when_it_is_over() -> None:
    malloc = CountedMalloc()
    allocator = Allocator(malloc, at_once)
    first, rest = ([bytes(100 + number % 50) for number in range(count)] for count in (300_000, 100_000))
    await allocator.look()
    first.clear()
    await allocator.look()
    assert malloc.trims == 1
    rest.clear()
    await allocator.look()
    assert malloc.trims == 1  # it may go on
    await allocator.look()
    assert malloc.trims == 2
    await allocator.look()
    assert malloc.trims == 2


@pytest.mark.skipif(not Malloc().is_known, reason="another C library than glibc")
async def test_freed_pieces_between_others_that_stay_go_back_to_the_system() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    size = 20_000
    pieces = [libc.malloc(ctypes.c_size_t(size)) for _ in range(5000)]
    for piece in pieces:
        ctypes.memset(piece, 1, size)
    malloc = Malloc()
    taken = malloc.anonymous_bytes()
    for number, piece in enumerate(pieces):
        if number % 50:
            libc.free(piece)
    await Allocator(malloc, at_once).look()
    given_back = taken - malloc.anonymous_bytes()
    for piece in pieces[::50]:
        libc.free(piece)
    assert given_back > 64 * MEGABYTE
