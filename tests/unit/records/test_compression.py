"""Codecs: what they write is what clients read, and no input makes them allocate beyond the limit."""

import gzip
import subprocess
import sys
import tracemalloc
import zlib
from struct import pack

import cramjam
import pytest

from penstock.core.error_codes import ErrorCode
from penstock.records.batch import InvalidBatch
from penstock.records.compression import Codec, DecompressionError, Unpacker, compress, decompress

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MEGABYTE = 1024 * 1024
XERIAL_HEADER = b"\x82SNAPPY\x00" + pack(">ii", 1, 1)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"a", b"abc" * 50_000, bytes(range(256)) * 300, bytes(3 * MEGABYTE)])
def test_round_trip(codec: Codec, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data))) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_any_buffer_is_accepted(codec: Codec) -> None:
    data = b"penstock" * 100
    packed = compress(codec, memoryview(bytearray(data)))
    assert bytes(decompress(codec, memoryview(b"x" + packed)[1:])) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_the_limit_is_exact(codec: Codec) -> None:
    data = b"penstock" * 5000
    packed = compress(codec, data)
    assert len(decompress(codec, packed, len(data))) == len(data)
    with pytest.raises(DecompressionError) as caught:
        decompress(codec, packed, len(data) - 1)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_unpack_one_behind_the_other_and_again_into_the_same_memory(codec: Codec) -> None:
    unpacker = Unpacker()
    # From well below the first guess to far beyond it, and back.
    for pieces in ([b"a", b"", b"abc" * 50_000], [bytes(3 * MEGABYTE), b"x"], [b"penstock" * 300] * 3):
        unpacker.restart()
        assert [unpacker.add(codec, compress(codec, piece)) for piece in pieces] == [len(p) for p in pieces]
        assert bytes(unpacker.view()) == b"".join(pieces)


@pytest.mark.parametrize("codec", list(Codec))
def test_unpacking_into_used_memory_has_the_same_limits(codec: Codec) -> None:
    data, unpacker = b"penstock" * 5000, Unpacker()
    packed = compress(codec, data)
    unpacker.add(codec, compress(codec, bytes(MEGABYTE)))
    unpacker.restart()
    for _ in range(2):
        unpacker.add(codec, packed, len(data))
        with pytest.raises(DecompressionError):
            unpacker.add(codec, packed, len(data) - 1)
        if codec is not Codec.NONE:
            with pytest.raises(DecompressionError):
                unpacker.add(codec, packed[: len(packed) // 2])
    with pytest.raises(DecompressionError, match="unknown"):
        unpacker.add(7, packed)
    assert bytes(unpacker.view()) == data * 2


@pytest.mark.parametrize("level", [-1, 1, 6, 9])
def test_gzip_is_gzip_at_every_level(level: int) -> None:
    assert gzip.decompress(compress(Codec.GZIP, b"abc" * 1000, level)) == b"abc" * 1000


@pytest.mark.parametrize("level", [None, 1, 9, 12, 17])
def test_lz4_frames_have_independent_blocks(level: int | None) -> None:
    packed = compress(Codec.LZ4, b"abc" * 100_000, level)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    flags = packed[4]
    assert flags >> 6 == 1
    assert flags & 0x20, "the Java client refuses linked blocks"
    assert bytes(decompress(Codec.LZ4, packed)) == b"abc" * 100_000


@pytest.mark.parametrize("level", [-131072, -5, 1, 3, 19])
def test_zstd_levels(level: int) -> None:
    assert bytes(decompress(Codec.ZSTD, compress(Codec.ZSTD, b"abc" * 1000, level))) == b"abc" * 1000


def test_snappy_is_written_framed_and_read_framed_raw_and_concatenated() -> None:
    data = bytes(range(256)) * 400
    framed = compress(Codec.SNAPPY, data)
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert framed.startswith(XERIAL_HEADER)
    assert bytes(decompress(Codec.SNAPPY, framed)) == data
    assert bytes(decompress(Codec.SNAPPY, raw)) == data
    assert bytes(decompress(Codec.SNAPPY, framed + framed)) == data + data


@pytest.mark.parametrize(
    "data",
    [
        XERIAL_HEADER[:10],
        XERIAL_HEADER + b"\x00",
        XERIAL_HEADER + pack(">i", 0),
        XERIAL_HEADER + pack(">i", -1) + b"abc",
        XERIAL_HEADER + pack(">i", 100) + b"abc",
        XERIAL_HEADER + pack(">i", 3) + b"\xff\xff\xff",
        b"\xff\xff\xff\xff\x0f\x00a",
        b"\x80\x80\x04\x00a",
    ],
)
def test_damaged_snappy_is_refused(data: bytes) -> None:
    with pytest.raises(DecompressionError):
        decompress(Codec.SNAPPY, data)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_cut_and_foreign_bytes_are_refused(codec: Codec) -> None:
    packed = compress(codec, bytes(range(256)) * 20)
    for damaged in (packed[:-1], packed[: len(packed) // 2], b"\xffnothing of the kind"):
        with pytest.raises(DecompressionError):
            decompress(codec, damaged)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    with pytest.raises(InvalidBatch):
        decompress(codec, b"abc")
    with pytest.raises(ValueError, match="codec"):
        compress(codec, b"abc")


def test_a_snappy_block_that_claims_the_impossible_gets_no_buffer() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionError):
            decompress(Codec.SNAPPY, b"\x80\x80\x80\x18" + b"\x00a", 100 * MEGABYTE)
        assert tracemalloc.get_traced_memory()[1] < MEGABYTE
    finally:
        tracemalloc.stop()


def gzip_bomb(megabytes: int) -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return b"".join([packer.compress(bytes(MEGABYTE)) for _ in range(megabytes)] + [packer.flush()])


def zstd_bomb(megabytes: int) -> bytes:
    packer = cramjam.zstd.Compressor(1)
    for _ in range(megabytes):
        packer.compress(bytes(MEGABYTE))
    return bytes(packer.finish())


def wide_zstd_bomb(megabytes: int) -> bytes:
    """A frame that asks for a window of 128 MB, then runs of one byte, 128 kB per four bytes."""
    run = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    last = (1 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\x00"
    return bytes.fromhex("28b52ffd 00 88") + run * (8 * megabytes) + last


def lz4_bomb(megabytes: int) -> bytes:
    packer = cramjam.lz4.Compressor()
    for _ in range(megabytes):
        packer.compress(bytes(MEGABYTE))
    return bytes(packer.finish())


def framed_snappy_bomb(megabytes: int) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(MEGABYTE)))
    return XERIAL_HEADER + (pack(">i", len(block)) + block) * megabytes


def raw_snappy_bomb(megabytes: int) -> bytes:
    """One literal zero, then copies of 64 bytes from one byte back, until the declared size is reached."""
    size = 1 + 64 * (megabytes * MEGABYTE // 64)
    declared = bytearray()
    rest = size
    while rest >= 0x80:
        declared.append(rest & 0x7F | 0x80)
        rest >>= 7
    declared.append(rest)
    return bytes(declared) + b"\x00\x00" + b"\xfe\x01\x00" * (size // 64)


BOMBS = {
    "gzip": (Codec.GZIP, gzip_bomb),
    "zstd": (Codec.ZSTD, zstd_bomb),
    "zstd with a wide window": (Codec.ZSTD, wide_zstd_bomb),
    "lz4": (Codec.LZ4, lz4_bomb),
    "framed snappy": (Codec.SNAPPY, framed_snappy_bomb),
    "raw snappy": (Codec.SNAPPY, raw_snappy_bomb),
}

# Peak memory is a matter of the whole process (the codecs allocate outside Python), so it is taken in one.
MEASURE = """
import sys
from penstock.records.compression import DecompressionError, compress, decompress

def peak_kb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

codec, limit = int(sys.argv[1]), int(sys.argv[2])
decompress(codec, compress(codec, b"warm"))
bomb = sys.stdin.buffer.read()
before = peak_kb()
try:
    decompress(codec, bomb, limit)
except DecompressionError:
    print("refused", peak_kb() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads peak memory from /proc")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_the_limits_memory(name: str) -> None:
    codec, build = BOMBS[name]
    assert len(decompress(codec, build(2), 4 * MEGABYTE)) >= 2 * MEGABYTE, "the bomb must be real"
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(int(codec)), str(8 * MEGABYTE)],
        input=build(100),
        capture_output=True,
        check=True,
    )
    verdict, grown_kb = done.stdout.split()
    assert verdict == b"refused"
    assert int(grown_kb) < 24 * 1024
