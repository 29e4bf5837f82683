"""The four codecs of a record batch, with a hard bound on what they may unpack to.

A few kilobytes can claim to be gigabytes, so nothing is decompressed without a limit. cramjam writes into
a buffer of our size and fails when it is full; the buffer starts at a likely size and grows up to the
limit, so that memory follows the data and never passes the limit, whatever the input claims.

Snappy comes in two forms. Java clients frame it the xerial way, librdkafka sends one raw block:

    82 'SNAPPY' 00 | version int32 | compatible int32 | { length int32 | raw snappy block }…

Both are read, the framed one is written, as all clients read it. LZ4 frames are written with independent
blocks: Kafka's Java client refuses linked ones.

cramjam is loaded on first use: most brokers never open a batch.
"""

from enum import IntEnum
from functools import cache
from io import BytesIO
from struct import Struct
from typing import Any, NamedTuple, cast

from penstock.core.error_codes import ErrorCode
from penstock.records.batch import Buffer, InvalidBatch

# What one batch may unpack to unless the caller says otherwise: a hundred times the default
# `max.message.bytes`, and still harmless when two threads meet a hostile batch at the same time.
DECOMPRESSED_BYTES_MAX = 100 * 1024 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x01"
_XERIAL_HEADER_BYTES = 16
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = Struct(">i")
# Typical batches shrink three- to fivefold; a wrong guess costs one more pass over the data.
_GROWTH = 4
_OUTPUT_BYTES_MIN = 16 * 1024
_OUTPUT_ZEROED_BYTES_MAX = 4 * 1024 * 1024
_UNTOUCHED = bytes.fromhex("9b e1 5d 04 c7 f3 2a 86")
# LZ4's fast mode, which is also what Kafka's Java client means by its default level.
_LZ4_LEVEL_FAST = 1
_LZ4_LEVEL_KAFKA_DEFAULT = 9
_GZIP_LEVEL_DEFAULT = 6


class Codec(IntEnum):
    """By the number in the batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressionError(InvalidBatch):
    """Records that do not unpack, or unpack to more than allowed; sending them again would not help."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class UnpacksToMore(DecompressionError):  # noqa: N818 - named for what it says
    """More than the caller allowed; with a higher limit it may be fine."""


class OpeningLimit(NamedTuple):
    """What may be unpacked of one batch, else UnpacksToMore."""

    size_bytes: int = DECOMPRESSED_BYTES_MAX
    records: int = DECOMPRESSED_BYTES_MAX

    def check_count(self, records: int) -> None:
        if records > self.records:
            raise UnpacksToMore(f"{records} records, more than {self.records}")


WHOLE = OpeningLimit()


@cache
def _cramjam() -> Any:
    import cramjam  # noqa: PLC0415 - 10 ms at start-up that a pass-through broker never needs

    return cramjam


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`level` as in the topic's `compression.<codec>.level`; None is the codec's default."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        if level is None or level < 0:
            level = _GZIP_LEVEL_DEFAULT
        return bytes(_cramjam().gzip.compress(data, level))
    if codec == Codec.SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec == Codec.LZ4:
        if level is None or level == _LZ4_LEVEL_KAFKA_DEFAULT:
            level = _LZ4_LEVEL_FAST
        compressor = _cramjam().lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))
        return bytes(compressor.finish())
    if codec == Codec.ZSTD:
        return bytes(_cramjam().zstd.compress(data, level))
    raise ValueError(f"no compression codec {codec}")


def decompress(codec: int, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """The bytes behind `data`, at most `limit_bytes` of them, or DecompressionError."""
    if codec == Codec.NONE:
        if len(data) > limit_bytes:
            raise UnpacksToMore(f"{len(data)} bytes of records, more than {limit_bytes}")
        return data
    if codec == Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), limit_bytes)
    module = _stream_module(codec)
    if module is None:
        raise DecompressionError(f"unknown compression codec {codec}")
    return _decompress_stream(module, data, limit_bytes)


class Unpacker:
    """Batches unpacked one behind the other into one buffer, which is used again after `restart`.

    For readers of many batches: a new buffer is zeroed and mapped page by page for each, and what was unpacked must be
    joined, which together costs more than unpacking lz4 does. Whoever restarts has no use for older views.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.size_bytes = 0

    def restart(self) -> None:
        self.size_bytes = 0

    def view(self) -> memoryview:
        """All that was added since the start."""
        return memoryview(self._buffer)[: self.size_bytes].toreadonly()

    def add(self, codec: int, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> int:
        """What the bytes behind `data` took, at most `limit_bytes`, or DecompressionError, which adds nothing."""
        module = _stream_module(codec)
        if module is None:
            piece = decompress(codec, data, limit_bytes)
            added = len(piece)
            self._room(added)[:added] = piece
        else:
            added = self._add_stream(module, data, limit_bytes)
        self.size_bytes += added
        return added

    def _add_stream(self, module: Any, data: Buffer, limit_bytes: int) -> int:
        wanted_bytes = min(limit_bytes, _likely_bytes(data))
        while True:
            with self._room(wanted_bytes)[:limit_bytes] as output:
                written = _decompress_into(module, data, output)
                if written is not None:
                    return written
                wanted_bytes = _more(len(output), limit_bytes)

    def _room(self, wanted_bytes: int) -> memoryview:
        """The free end of the buffer, at least so large."""
        needed_bytes = self.size_bytes + wanted_bytes
        if needed_bytes > len(self._buffer):
            # A new one, so that a view of the old one, should there be any, stays what it was. Half as much again: a
            # part grows batch by batch.
            larger = bytearray(needed_bytes + needed_bytes // 2)
            larger[: self.size_bytes] = memoryview(self._buffer)[: self.size_bytes]
            self._buffer = larger
        return memoryview(self._buffer)[self.size_bytes :]


def _stream_module(codec: int) -> Any:
    """cramjam's module for a codec that says nothing of its size before it is unpacked; None for the others."""
    if codec == Codec.GZIP:
        return _cramjam().gzip
    if codec == Codec.LZ4:
        return _cramjam().lz4
    if codec == Codec.ZSTD:
        return _cramjam().zstd
    return None


def _likely_bytes(data: Buffer) -> int:
    return max(_OUTPUT_BYTES_MIN, _GROWTH * len(data))


def _decompress_stream(module: Any, data: Buffer, limit_bytes: int) -> Buffer:
    size_bytes = min(limit_bytes, _likely_bytes(data))
    while True:
        output = _room_for(size_bytes)
        written = _decompress_into(module, data, output)
        if written is not None:
            if isinstance(output, memoryview):
                return output[:written]
            del output[written:]
            return output
        # Before its successor is allocated, so that the two never add up, and before an error remembers it.
        del output
        size_bytes = _more(size_bytes, limit_bytes)


def _more(size_bytes: int, limit_bytes: int) -> int:
    """The next size to try when so many bytes were too few."""
    if size_bytes >= limit_bytes:
        raise UnpacksToMore(f"cannot decompress within {limit_bytes} bytes")
    return min(limit_bytes, size_bytes * _GROWTH)


def _room_for(size_bytes: int) -> bytearray | memoryview:
    """To be written to. A bytearray is zeroed, which for a large one would hold up the other threads."""
    if size_bytes < _OUTPUT_ZEROED_BYTES_MAX:
        return bytearray(size_bytes)
    return BytesIO(bytes(size_bytes)).getbuffer()  # bytes of zeros cost nothing until they are touched


def _decompress_into(module: Any, data: Buffer, output: bytearray | memoryview) -> int | None:
    """The bytes written; None when `output` is too small and a larger one may do."""
    # cramjam raises the same error for a full buffer and for damaged input, but only a full buffer has
    # lost the mark at its end. So damage is refused at once instead of being retried up to the limit.
    size_bytes = len(output)
    mark = _UNTOUCHED[:size_bytes]
    output[size_bytes - len(mark) :] = mark
    try:
        return cast(int, module.decompress_into(data, output))
    except _cramjam().DecompressionError as error:
        if bytes(output[size_bytes - len(mark) :]) == mark:
            raise DecompressionError(f"cannot decompress: {error}") from None
        return None


def _compress_xerial(data: memoryview) -> bytes:
    snappy = _cramjam().snappy
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES])
        out += _BLOCK_LENGTH.pack(len(block))
        out += memoryview(block)
    return bytes(out)


def _decompress_snappy(data: memoryview, limit_bytes: int) -> bytearray:
    out = bytearray()
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        _append_block(out, data, limit_bytes)
        return out
    position = _XERIAL_HEADER_BYTES
    end = len(data)
    if end < position:
        raise DecompressionError("the snappy header is cut off")
    while position < end:
        # Streams may be concatenated: a header can stand where a block is expected.
        if bytes(data[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += _XERIAL_HEADER_BYTES
            continue
        if end - position < _BLOCK_LENGTH.size:
            raise DecompressionError("a snappy block is cut off")
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= end - position:
            raise DecompressionError(f"a snappy block of {length} bytes, with {end - position} left")
        _append_block(out, data[position : position + length], limit_bytes)
        position += length
    return out


def _append_block(out: bytearray, block: memoryview, limit_bytes: int) -> None:
    """A raw block declares its size up front; the declaration is checked before anything is allocated."""
    snappy = _cramjam().snappy
    start = len(out)
    try:
        size_bytes = cast(int, snappy.decompress_raw_len(block))
        if start + size_bytes > limit_bytes:
            raise UnpacksToMore(f"{start + size_bytes} bytes of records, more than {limit_bytes}")
        # Snappy copies at most 64 bytes per 3 bytes of input: a larger claim is a lie, not worth a buffer.
        if size_bytes > 64 * len(block):
            raise DecompressionError(f"a snappy block of {len(block)} bytes cannot hold {size_bytes}")
        piece = bytearray(size_bytes)
        if size_bytes:
            snappy.decompress_raw_into(block, piece)
    except _cramjam().DecompressionError as error:
        raise DecompressionError(f"cannot decompress snappy: {error}") from None
    out += piece
