"""Zigzag varints of many records at once: one pass over all lanes per byte, not per number.

A varint is at most five bytes for 32-bit numbers and ten for 64-bit ones, least significant group first,
the high bit set where more follows. Zigzag puts the sign in the lowest bit.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.varints import VARINT_BYTES_MAX, VARLONG_BYTES_MAX

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]

_MORE = np.uint8(0x80)
_GROUP = np.uint8(0x7F)
_GROUP_BITS = 7
_ONE = np.uint64(1)
_OVERLONG = "an overlong varint"


class LaneError(Exception):
    """Something wrong in one record; `lane` says which. Never leaves records/."""

    def __init__(self, lane: int, message: str) -> None:
        super().__init__(message)
        self.lane = lane


def refuse(wrong: NDArray[np.bool_], message: str) -> None:
    if wrong.any():
        raise LaneError(int(wrong.argmax()), message)


class Varints(NamedTuple):
    values: Longs
    after: Longs


def read_varints(data: Bytes, at: Longs, bytes_max: int = VARINT_BYTES_MAX) -> Varints:
    """The numbers at the positions `at`, and the positions behind them.

    A position beyond the data reads its last byte: the caller, who knows where each record ends, finds
    out from `after`. So no length, however wrong, reads outside `data`.
    """
    byte = data.take(at, mode="clip")
    after = at + 1
    if not len(at) or byte.max() < _MORE:
        return Varints(_unzigzag(byte.astype(np.uint64)), after)
    values = (byte & _GROUP).astype(np.uint64)
    lanes = np.flatnonzero(byte & _MORE)
    shift = _GROUP_BITS
    while lanes.size:
        if shift == _GROUP_BITS * bytes_max:
            raise LaneError(int(lanes[0]), _OVERLONG)
        if lanes.size == len(at):
            # All lanes go on, as lengths over 63 do in topics of like records: no need to pick some.
            byte = data.take(after, mode="clip")
            values |= (byte & _GROUP).astype(np.uint64) << np.uint64(shift)
            after += 1
        else:
            byte = data.take(after[lanes], mode="clip")
            values[lanes] |= (byte & _GROUP).astype(np.uint64) << np.uint64(shift)
            after[lanes] += 1
        if shift == _GROUP_BITS * (VARLONG_BYTES_MAX - 1) and byte.max() > 1:
            # The tenth byte has room for one bit of a 64-bit number.
            raise LaneError(int(lanes[int(byte.argmax())]), _OVERLONG)
        lanes = lanes[byte >= _MORE]
        shift += _GROUP_BITS
    return Varints(_unzigzag(values), after)


def _unzigzag(values: NDArray[np.uint64]) -> Longs:
    return (values >> _ONE).view(np.int64) ^ -(values & _ONE).view(np.int64)


def zigzag(values: Longs) -> NDArray[np.uint64]:
    return ((values << np.int64(1)) ^ (values >> np.int64(63))).view(np.uint64)


def varint_sizes(zigzagged: NDArray[np.uint64]) -> Longs:
    """How many bytes each takes."""
    sizes = np.ones(len(zigzagged), np.int64)
    most = int(zigzagged.max(initial=0))
    bits = _GROUP_BITS
    while most >> bits:
        sizes += zigzagged >= np.uint64(1 << bits)
        bits += _GROUP_BITS
    return sizes


def write_varints(out: Bytes, at: Longs, zigzagged: NDArray[np.uint64], sizes: Longs) -> None:
    """Put each number at its place in `out`, in as many bytes as `sizes` says."""
    shortest, longest = int(sizes.min(initial=VARLONG_BYTES_MAX)), int(sizes.max(initial=0))
    for index in range(longest):
        if index < shortest:
            lanes: NDArray[np.intp] | slice = slice(None)
        else:
            lanes = np.flatnonzero(sizes > index)
        rest = zigzagged[lanes] >> np.uint64(_GROUP_BITS * index)
        byte = rest.astype(np.uint8) & _GROUP
        if index + 1 < shortest:
            byte |= _MORE
        elif index + 1 < longest:
            byte |= (sizes[lanes] > index + 1).astype(np.uint8) << np.uint8(_GROUP_BITS)
        out[at[lanes] + index] = byte
