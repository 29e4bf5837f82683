"""`records.partitioner` for a column of keys: murmur2 a word at a time, over all keys together.

The passes are as many as the longest key has words. Keys much longer than the rest are few; they are
hashed one by one.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.records.columns.arrow import binary_column, lengths_of, values_of
from penstock.records.columns.varints import Bytes, Longs
from penstock.records.partitioner import murmur2

Words = NDArray[np.uint32]

_SEED = np.uint32(0x9747B28C)
_MULTIPLIER = np.uint32(0x5BD1E995)
_WORD_BYTES = 4
# Fewer keys than this are quicker in plain Python.
_LANES_MIN = 16


def partition_of(key: pa.Array | pa.ChunkedArray, partitions: int) -> NDArray[np.int32]:
    """The partition of each key among `partitions`, as every Kafka client has it; -1 where the key is null."""
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    column = binary_column(key)
    lengths = lengths_of(column)
    starts, data = values_of(column)
    hashes = murmur2_of(data, starts, lengths) & np.uint32(0x7FFFFFFF)
    out = (hashes % np.uint32(partitions)).astype(np.int32)
    out[lengths < 0] = -1
    return out


def murmur2_of(data: Bytes, starts: Longs, lengths: Longs) -> Words:
    """The hash of every `data[start : start + length]`; those of negative length mean nothing."""
    value = _SEED ^ lengths.astype(np.uint32)
    whole = np.where(lengths > 0, lengths & ~np.int64(_WORD_BYTES - 1), 0)
    lanes = np.flatnonzero(whole)
    done = 0
    while lanes.size >= _LANES_MIN:
        word = _words(data, starts[lanes] + done) * _MULTIPLIER
        word = (word ^ (word >> np.uint32(24))) * _MULTIPLIER
        value[lanes] = (value[lanes] * _MULTIPLIER) ^ word
        done += _WORD_BYTES
        lanes = lanes[whole[lanes] > done]
    value = _tails(data, starts + whole, lengths - whole, value)
    value = (value ^ (value >> np.uint32(13))) * _MULTIPLIER
    value ^= value >> np.uint32(15)
    for lane in lanes.tolist():
        value[lane] = murmur2(data[starts[lane] : starts[lane] + lengths[lane]].tobytes())
    return value


def _words(data: Bytes, at: Longs) -> Words:
    """Little-endian words anywhere in the data; numpy reads them unaligned."""
    every = np.ndarray((len(data) - _WORD_BYTES + 1,), "<u4", data, strides=(1,))
    return every[at].astype(np.uint32, copy=False)


def _tails(data: Bytes, at: Longs, left: Longs, value: Words) -> Words:
    """The one to three bytes behind the last whole word, with the multiplication only where there are any."""
    for index in range(_WORD_BYTES - 1):
        lanes = np.flatnonzero(left > index)
        if lanes.size:
            value[lanes] ^= data[at[lanes] + index].astype(np.uint32) << np.uint32(8 * index)
    lanes = np.flatnonzero(left > 0)
    value[lanes] *= _MULTIPLIER
    return value
