"""The files of a broker that is stopped, read from end to end: every batch whole, undamaged and in its place."""

import mmap
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from penstock.core.errors import StorageError
from penstock.core.internal_topics import OFFSETS_TOPIC
from penstock.records.batch import HEADER_BYTES, InvalidBatch, check_batch, size_at
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.layout import (
    CLEANER_FILE,
    LOG,
    RECOVERY_POINT_FILE,
    START,
    parse_segment_name,
    segment_name,
)

_PIECE_BYTES = 8 * 1024 * 1024


_MAGIC_AT = 16  # in a batch


class Progress(Protocol):
    def show(self, done: float, total: float) -> None: ...


def is_compacted(directory: Path) -> bool:
    """Whether offsets may be missing by right, as far as files tell."""

    return directory.parent.name == OFFSETS_TOPIC or (directory / CLEANER_FILE).exists()


def check_partition(
    directory: Path, *, clean: bool, compacted: bool, progress: Progress, before: int = 0, total: int = 0
) -> tuple[str, int]:
    """What is wrong first (empty: nothing), and how many bytes were read."""
    done, wrong, missing = 0, "", ""
    found = _Walk()
    files = sorted(path for path in directory.glob("*.log") if path.stem.isdigit())
    point = _recovery_point(directory)
    durable = (-1, -1) if point is None else (point.segment, point.position)
    for number, file in enumerate(files):
        base = int(file.stem)
        if 0 <= found.expected < base and not missing:
            missing = f"{file.name}: offsets {found.expected} to {base - 1} are missing before it"
        for size, damage in found.through(file):
            done += size
            progress.show(before + done, total)
            if damage is not None:
                # What a crash tore off at the very end is cut by the next start; what it has vouched for, or what
                # whole batches follow, was not torn off.
                torn = not clean and number == len(files) - 1 and not damage.followed
                if not torn or (base, damage.position) < durable:
                    wrong = wrong or f"{file.name}: {damage.what}"
        missing = missing or found.hole
    if not compacted:
        wrong = wrong or missing
    bases = [int(file.stem) for file in files]
    wrong = wrong or _cut_off(directory, point, bases, max([found.expected, *bases[-1:]]), clean=clean)
    return wrong, done


def _cut_off(
    directory: Path, point: RecoveryPoint | None, bases: Sequence[int], end: int, *, clean: bool
) -> str:
    """What the recovery point vouches for before the first batch or behind the last."""
    if point is None:
        return ""
    starts = [parse_segment_name(file.name, START) or 0 for file in directory.glob(f"*{START}")]
    start = max([point.start_offset, *starts])
    if not bases:
        return "" if start >= point.offset else f"offsets {start} to {point.offset - 1} are missing"
    # Retention takes segments without a word: only a broker that stops writes down where the log starts then.
    if clean and start < bases[0]:
        return f"{segment_name(bases[0], LOG)}: offsets {start} to {bases[0] - 1} are missing before it"
    if end < point.offset and start < point.offset:
        last = segment_name(bases[-1], LOG)
        return f"{last}: offsets {max(start, end)} to {point.offset - 1} are missing behind it"
    return ""


def _recovery_point(directory: Path) -> RecoveryPoint | None:
    """Up to where everything was vouched for."""

    try:
        return RecoveryPoint.parse((directory / RECOVERY_POINT_FILE).read_bytes())
    except (OSError, StorageError):
        return None


class _Damage(NamedTuple):
    position: int
    what: str
    followed: bool  # by a whole batch


class _Walk:
    """Through the batches of a partition, segment by segment."""

    def __init__(self) -> None:
        self.expected = -1  # the next offset; -1: any
        # The first offsets that are missing inside a segment. Whoever compacts leaves the cleaner's file, and so does a
        # follower that takes over what its leader compacted.
        self.hole = ""

    def through(self, file: Path) -> Iterator[tuple[int, _Damage | None]]:
        """Bytes that are in order, piece by piece; last, where there is any, what is not."""

        position = 0
        end = file.stat().st_size
        with file.open("rb") as source:
            while position < end:
                source.seek(position)
                view = memoryview(source.read(_PIECE_BYTES))
                at = 0
                try:
                    size = size_at(view, 0, len(view))
                    if size is not None and len(view) < size <= end - position:
                        source.seek(position)
                        view = memoryview(source.read(size))
                    while at < len(view):
                        size = size_at(view, at, len(view))
                        if at and (size is None or at + size > len(view)):
                            break  # the rest comes with the next piece
                        header = check_batch(view, at)
                        if header.base_offset < self.expected:
                            what = f"offset {header.base_offset} follows {self.expected - 1}"
                            yield at, _Damage(position + at, what, followed=True)
                            return
                        if header.base_offset > self.expected and position + at > 0 and not self.hole:
                            hole = f"offsets {self.expected} to {header.base_offset - 1} are missing"
                            self.hole = f"{file.name}: {hole} at byte {position + at}"
                        self.expected = header.next_offset
                        at += header.size_bytes
                except InvalidBatch as error:
                    what = f"at byte {position + at}, offset {max(self.expected, 0)} or later: {error}"
                    yield at, _Damage(position + at, what, _holds_batch(file, position + at, self.expected))
                    return
                position += at
                yield at, None


def _holds_batch(file: Path, position: int, expected: int) -> bool:
    """Whether a whole batch lies somewhere behind a byte, of an offset near the one that is expected."""
    with file.open("rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return any(offset > expected for offset in _offsets_behind(data, position + 1, expected))


def _offsets_behind(data: mmap.mmap, position: int, expected: int) -> Iterator[int]:

    near = re.escape(max(expected, 0).to_bytes(8, "big")[:5])
    places = re.compile(b"(?=%b.{%d}\\x02)" % (near, _MAGIC_AT - 5), re.DOTALL)
    starts = [found.start() for found in places.finditer(data, position)]
    for at in starts:
        try:
            size = size_at(data[at : at + HEADER_BYTES], 0, len(data) - at)
            yield check_batch(memoryview(data[at : at + (size or 0)]), 0).base_offset
        except InvalidBatch:
            continue
