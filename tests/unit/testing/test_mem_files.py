"""The simulated disk: what a power cut may and may not take, and faults on command."""

import itertools
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import DiskFailedError, DiskFullError
from penstock.testing.mem_disk import COLD_CHUNK_BYTES, PAGE_BYTES
from penstock.testing.mem_file import MemFile, StaleFileError
from penstock.testing.mem_files import MemFiles

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = Path("/data/log")
SEEDS = range(200)


def _durable_file(content: bytes = b"") -> tuple[MemFiles, MemFile]:
    files = MemFiles()
    files.make_dirs(LOG.parent)
    file = files.open(LOG, create=True)
    if content:
        file.pwrite(content, 0)
    file.sync()
    files.sync_dir(LOG.parent)
    files.sync_dir(Path("/"))
    return files, file


def test_what_was_synced_survives_every_power_cut() -> None:
    for seed in SEEDS:
        files, file = _durable_file(b"safe")
        file.pwrite(b" and not", 4)
        after = files.crash(random.Random(seed)).read(LOG)
        assert after[:4] == b"safe"
        assert len(after) <= 12


def test_unsynced_bytes_are_lost_kept_torn_or_holed() -> None:
    writes = [bytes([65 + n]) * PAGE_BYTES for n in range(4)]
    whole = b"".join(writes)
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        files, file = _durable_file()
        for number, write in enumerate(writes):
            file.pwrite(write, number * PAGE_BYTES)
        after = files.crash(random.Random(seed)).read(LOG)
        if not after:
            seen["lost"] += 1
        elif after == whole:
            seen["kept"] += 1
        elif whole.startswith(after):
            seen["torn" if len(after) % PAGE_BYTES else "prefix"] += 1
        else:
            assert len(after) == len(whole)
            for page in range(4):
                part = after[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]
                assert part in (writes[page], bytes(PAGE_BYTES))
            seen["holed"] += 1
    assert set(seen) == {"lost", "kept", "torn", "prefix", "holed"}


def test_a_lost_overwrite_shows_the_old_bytes() -> None:
    outcomes = set()
    for seed in SEEDS:
        files, file = _durable_file(b"old!")
        file.pwrite(b"new!", 0)
        outcomes.add(files.crash(random.Random(seed)).read(LOG))
    assert {b"old!", b"new!"} <= outcomes
    assert outcomes <= {b"old!", b"new!", b"nld!", b"ned!"}


def test_a_truncation_is_not_durable_before_its_sync() -> None:
    outcomes = set()
    for seed in SEEDS:
        files, file = _durable_file(b"long content")
        file.truncate(4)
        outcomes.add(files.crash(random.Random(seed)).read(LOG))
    assert outcomes == {b"long content", b"long"}


def test_a_process_crash_loses_nothing_but_a_later_power_cut_may() -> None:
    contents = set()
    for seed in SEEDS:
        files, file = _durable_file()
        file.pwrite(b"x", 0)
        files = files.kill()
        assert files.read(LOG) == b"x"
        contents.add(files.crash(random.Random(seed)).read(LOG))
    assert contents == {b"", b"x", b"\0"}  # the last: the size is there, the page is not


def test_a_file_without_a_synced_directory_may_lose_its_name() -> None:
    found = set()
    for seed in SEEDS:
        files, _ = _durable_file()
        file = files.open(Path("/data/next"), create=True)
        file.pwrite(b"synced", 0)
        file.sync()
        files = files.crash(random.Random(seed))
        found.add(files.read(Path("/data/next")) if files.exists(Path("/data/next")) else None)
    assert found == {None, b"synced"}


def test_syncing_a_directory_does_not_sync_its_neighbours() -> None:
    lost = 0
    for seed in SEEDS:
        files, _ = _durable_file()
        files.make_dirs(Path("/data/a"))
        files.make_dirs(Path("/data/b"))
        files.sync_dir(Path("/data"))
        files.open(Path("/data/a/x"), create=True).close()
        files.open(Path("/data/b/y"), create=True).close()
        files.sync_dir(Path("/data/b"))
        files = files.crash(random.Random(seed))
        assert files.exists(Path("/data/b/y"))
        lost += not files.exists(Path("/data/a/x"))
    assert 0 < lost < len(SEEDS)


def test_a_rename_is_old_or_new_and_never_half() -> None:
    outcomes = set()
    for seed in SEEDS:
        files, _ = _durable_file(b"content")
        files.make_dirs(Path("/data/sub"))
        files.sync_dir(Path("/data"))
        files.rename(LOG, Path("/data/sub/moved"))
        files = files.crash(random.Random(seed))
        outcomes.add((files.exists(LOG), files.exists(Path("/data/sub/moved"))))
    assert outcomes == {(True, False), (False, True)}


def test_renames_in_a_row_leave_the_file_under_exactly_one_name() -> None:
    names = ["a", "b", "c", "d"]
    outcomes = set()
    for seed in SEEDS:
        files, _ = _durable_file(b"content")
        files.rename(LOG, Path("/data/a"))
        for old, new in itertools.pairwise(names):
            files.rename(Path("/data") / old, Path("/data") / new)
        left = files.crash(random.Random(seed)).list_dir(Path("/data"))
        assert len(left) == 1
        outcomes.add(left[0])
    assert outcomes == {"log", *names}


def test_an_unlink_is_not_durable_before_the_directory_sync() -> None:
    outcomes = set()
    for seed in SEEDS:
        files, _ = _durable_file(b"x")
        files.unlink(LOG)
        outcomes.add(files.crash(random.Random(seed)).exists(LOG))
        files, _ = _durable_file(b"x")
        files.unlink(LOG)
        files.sync_dir(LOG.parent)
        assert not files.crash(random.Random(seed)).exists(LOG)
    assert outcomes == {True, False}


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32), versions=st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=4)
)
def test_an_atomic_write_is_durable_when_it_returns(seed: int, versions: list[bytes]) -> None:
    files, _ = _durable_file()
    for version in versions:
        files.write_atomically(Path("/data/state"), version)
    assert files.crash(random.Random(seed)).read(Path("/data/state")) == versions[-1]


_changes = st.tuples(
    st.sampled_from(["write", "write", "cut", "sync"]), st.integers(0, 9000), st.binary(max_size=60)
)


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32), changes=st.lists(_changes, max_size=12))
def test_bytes_below_the_first_unsynced_change_survive(
    seed: int, changes: list[tuple[str, int, bytes]]
) -> None:
    files, file = _durable_file()
    safe, dirty_from = b"", 1 << 30
    for kind, offset, data in changes:
        if kind == "sync":
            file.sync()
            safe, dirty_from = file.pread(1 << 20, 0), 1 << 30
        elif kind == "cut":
            dirty_from = min(dirty_from, offset)
            file.truncate(offset)
        elif data:
            dirty_from = min(dirty_from, offset)
            file.pwrite(data, offset)
    after = files.crash(random.Random(seed)).read(LOG)
    assert after[:dirty_from][: len(safe)] == safe[:dirty_from]


def test_syncing_everything_makes_bytes_and_names_durable() -> None:
    for seed in range(50):
        files, file = _durable_file()
        file.pwrite(b"bytes", 0)
        files.make_dirs(Path("/data/topic/0"))
        other = files.open(Path("/data/topic/0/log"), create=True)
        other.pwrite(b"more", 0)
        files.sync_all(Path("/data"))
        files = files.crash(random.Random(seed))
        assert (files.read(LOG), files.read(Path("/data/topic/0/log"))) == (b"bytes", b"more")


def test_a_failed_sync_loses_the_bytes_although_the_next_one_succeeds() -> None:
    files, file = _durable_file(b"safe")
    file.pwrite(b"lost", 4)
    files.fail_next("sync", "*/log")
    with pytest.raises(DiskFailedError):
        file.sync()
    file.pwrite(b"late", 8)
    file.sync()
    assert file.pread(12, 0) == b"safelostlate"
    assert files.crash(random.Random(1)).read(LOG) == b"safe\0\0\0\0late"


def test_a_failed_sync_may_drop_what_it_did_not_write() -> None:
    seen = Counter[bytes]()
    for _ in range(60):
        files, file = _durable_file(b"safe")
        files.drops_pages = True
        files._rng = random.Random(len(seen) + seen.total())
        file.pwrite(b"lost", 4)
        files.fail_next("sync", "*/log")
        with pytest.raises(DiskFailedError):
            file.sync()
        left = file.pread(12, 0)
        seen[left] += 1
        file.sync()
        assert left[:4] == b"safe"
        assert files.crash(random.Random(1)).read(LOG) == left
    assert {b"safe", b"safelost", b"safe\0\0\0\0"} <= seen.keys()


def test_a_full_disk_takes_a_prefix_and_recovers_when_space_returns() -> None:
    files, file = _durable_file(b"1234")
    files.write_atomically(Path("/data/other"), b"0123456789")
    files.fill_up(3)
    with pytest.raises(DiskFullError):
        file.pwrite(b"abcdef", 4)
    assert file.pread(99, 0) == b"1234abc"
    assert files.free_bytes(Path("/data")) == 0
    file.pwrite(b"WXYZ", 0)  # no growth, no need of space
    files.unlink(Path("/data/other"))
    file.pwrite(b"def", 7)
    assert file.pread(99, 0) == b"WXYZabcdef"
    files.make_room()
    assert files.free_bytes(Path("/data")) > 1 << 30


@pytest.mark.parametrize("operation", ["read", "write", "truncate"])
def test_a_fault_strikes_the_named_operation_as_often_as_told(operation: str) -> None:
    files, file = _durable_file(b"abc")
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: file.pread(1, 0),
        "write": lambda: file.pwrite(b"x", 0),
        "truncate": lambda: file.truncate(3),
    }
    files.fail_next(operation, "/other/*")
    calls[operation]()
    files.fail_next(operation, "/data/*", count=2)
    for _ in range(2):
        with pytest.raises(DiskFailedError):
            calls[operation]()
    calls[operation]()
    assert file.size() == 3


def test_an_unknown_operation_cannot_be_told_to_fail() -> None:
    with pytest.raises(ValueError, match="flush is none of"):
        MemFiles().fail_next("flush")


def test_cold_ranges_are_warm_after_a_read() -> None:
    files = MemFiles(seed=3, cold_chance=1.0)
    file = files.open(Path("/f"), create=True)
    file.pwrite(b"x" * (2 * COLD_CHUNK_BYTES), 0)
    assert file.pread_cached(10, 0) == b"x" * 10  # just written, so in the page cache
    files.chill()
    assert file.pread_cached(10, 0) is None
    assert file.pread(10, 0) == b"x" * 10
    assert file.pread_cached(10, 0) == b"x" * 10
    assert file.pread_cached(10, COLD_CHUNK_BYTES) is None
    file.warm(10, COLD_CHUNK_BYTES)
    assert file.pread_cached(10, COLD_CHUNK_BYTES) == b"x" * 10


@pytest.mark.parametrize("end", ["kill", "crash"])
def test_the_old_process_cannot_touch_the_disk_any_more(end: str) -> None:
    files, file = _durable_file(b"x")
    files.lock(Path("/data/.lock"))
    successor = files.kill() if end == "kill" else files.crash(random.Random(2))
    uses: list[Callable[[], object]] = [
        lambda: file.pwrite(b"ghost", 0),
        file.sync,
        file.close,
        lambda: files.unlink(LOG),
    ]
    for use in uses:
        with pytest.raises(StaleFileError):
            use()
    with pytest.raises(StaleFileError):
        files.write_atomically(LOG, b"ghost")
    assert successor.read(LOG) == b"x"
    successor.lock(Path("/data/.lock"))


def test_a_closed_handle_is_refused() -> None:
    _, file = _durable_file(b"x")
    assert file.fileno() == -1
    file.close()
    with pytest.raises(StaleFileError):
        file.pread(1, 0)
    with pytest.raises(StaleFileError):
        file.sync()


def test_a_revoked_handle_gives_nothing_as_the_system_says_it() -> None:
    _, file = _durable_file(b"x")
    file.revoke()
    for use in (lambda: file.pread(1, 0), lambda: file.pwrite(b"y", 0), file.sync):
        with pytest.raises(DiskFailedError):
            use()


def test_a_write_back_that_fails_is_told_once_to_whoever_had_the_file_open() -> None:
    files = MemFiles()
    handle, other = files.open(Path("/f"), create=True), files.open(Path("/f"))
    files.sync_dir(Path("/"))
    handle.pwrite(b"x", 0)
    files.fail_write_back()
    later = files.open(Path("/f"))
    later.sync()
    for file in (handle, other):
        with pytest.raises(DiskFailedError):
            file.sync()
        file.sync()
    assert files.read(Path("/f")) == b"x", "the page is still there"
    assert files.crash(random.Random(1)).read(Path("/f")) == b""


def test_a_sync_that_fails_is_told_to_others_too_and_a_clean_file_has_no_error() -> None:
    files = MemFiles()
    handle, other = files.open(Path("/f"), create=True), files.open(Path("/f"))
    handle.pwrite(b"x", 0)
    files.fail_next("sync")
    for file in (handle, other):
        with pytest.raises(DiskFailedError):
            file.sync()
        file.sync()
    files.fail_write_back()
    handle.sync()


def test_what_a_failed_sync_left_in_memory_is_gone_when_memory_is_short() -> None:
    files = MemFiles()
    file = files.open(Path("/f"), create=True)
    file.pwrite(b"abc", 0)
    file.sync()
    file.pwrite(b"ABCDE", 0)
    files.fail_write_back()
    file.pwrite(b"e", 4)
    assert file.pread(9, 0) == b"ABCDe"
    files.chill()
    assert file.pread(9, 0) == b"abc\0e"
