"""A replay in bounded steps: by the offsets that the manifest has for every file, without opening any.

Files of one partition may overlap in offsets, since a file holds one hour by the records' own clocks. A step takes
files in the order of their first offsets and ends where the first file begins that it does not take: nothing below
that can be anywhere else.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.spark.pipelines.archive.entries import ArchivedFile

# What one job sorts: much more would spill to disk, much less would spend its time on starting.
WAVE_ROWS = 4_000_000
WAVE_BYTES = 400_000_000


class Slice(NamedTuple):
    """Offsets `start` to `end` (not included) of one partition."""

    start: int
    end: int
    weight: float  # about how many rows


@dataclass(frozen=True, slots=True)
class Wave:
    slices: Mapping[int, Slice]
    files: tuple[ArchivedFile, ...]


class Piece(NamedTuple):
    """What one file has of one partition."""

    first: int
    last: int
    file: ArchivedFile
    rows: float
    size_bytes: float


def pieces(files: Iterable[ArchivedFile], partition: int, start: int) -> list[Piece]:
    """By their first offsets, those that have something at `start` or behind it."""
    found = []
    for file in files:
        span = file.offsets.get(partition)
        if span is None or span[1] < start:
            continue
        offsets = sum(last - first + 1 for first, last in file.offsets.values())
        share = (span[1] - span[0] + 1) / offsets
        found.append(Piece(*span, file, file.rows * share, file.size_bytes * share))
    return sorted(found, key=lambda piece: (piece.first, piece.last, piece.file.path))


def next_wave(
    files: Collection[ArchivedFile],
    starts: Mapping[int, int],
    *,
    rows_max: int = WAVE_ROWS,
    bytes_max: int = WAVE_BYTES,
) -> Wave | None:
    """What is next for partitions that are done up to `starts`; None when nothing is left for any of them."""
    waiting = {partition: pieces(files, partition, start) for partition, start in starts.items()}
    waiting = {partition: found for partition, found in waiting.items() if found}
    if not waiting:
        return None
    slices: dict[int, Slice] = {}
    taken: dict[str, ArchivedFile] = {}
    share = len(waiting)
    for partition, found in waiting.items():
        slices[partition], used = _take(found, starts[partition], rows_max / share, bytes_max / share)
        taken |= {piece.file.path: piece.file for piece in used}
    return Wave(slices, tuple(taken[path] for path in sorted(taken)))


def _take(found: list[Piece], start: int, rows_max: float, bytes_max: float) -> tuple[Slice, list[Piece]]:
    used: list[Piece] = []
    rows = size_bytes = 0.0
    for piece in found:
        rows += piece.rows
        size_bytes += piece.size_bytes
        too_much = rows > rows_max or size_bytes > bytes_max
        # A wave must get somewhere, and those that begin at the same place belong together.
        if used and too_much and piece.first > max(start, used[-1].first):
            return Slice(start, piece.first, rows - piece.rows), used
        used.append(piece)
    return Slice(start, max(piece.last for piece in used) + 1, rows), used


def spread(weights: Mapping[int, float], tasks: int) -> dict[int, int]:
    """A task for each partition, so that they have about as much to do: the heaviest first, to who has least."""
    loads = [0.0] * tasks
    given = {}
    for partition, weight in sorted(weights.items(), key=lambda weighed: (-weighed[1], weighed[0])):
        task = loads.index(min(loads))
        loads[task] += weight + 1
        given[partition] = task
    return given
