"""Damaged frames against every decoder: only `DecodeError` escapes, and memory stays near the frame's size."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import pytest
from tests.property.kafka_values import Case, all_cases

from penstock.wire.kafka.headers import decode_request_header, decode_response_header
from penstock.wire.kafka.primitives import DecodeError

# The worst honest ratio is an empty list (56 bytes and its place) for one byte on the wire.
BYTES_PER_FRAME_BYTE = 128
BYTES_ALWAYS = 32 * 1024
RANDOM_MUTANTS = 60

# What a count or a length may be turned into, as int32 and as varint: huge, negative, null, without end.
PLANTED = {
    "legacy": [b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x7f\xff"],
    "flexible": [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80\x00", b"\x00"],
}
PLACES = 200


def planted(frame: bytes, form: str) -> Iterator[bytes]:
    """Each of `PLANTED` over every place in the frame."""
    for position in range(min(len(frame), PLACES)):
        for bytes_ in PLANTED[form]:
            yield frame[:position] + bytes_ + frame[position + len(bytes_) :]


def mutated(frame: bytes, random: Random) -> Iterator[bytes]:
    for _ in range(RANDOM_MUTANTS):
        mutant = bytearray(frame)
        for _ in range(random.randint(1, 4)):
            place = random.randrange(len(mutant) + 1)
            match random.randrange(4):
                case 0 if place < len(mutant):
                    mutant[place] ^= 1 << random.randrange(8)
                case 1:
                    mutant[place:place] = random.randbytes(random.randint(1, 5))
                case 2:
                    del mutant[place : place + random.randint(1, 5)]
                case _:  # splice: one part of the frame over another
                    source = random.randrange(len(mutant) + 1)
                    mutant[place : place + 8] = mutant[source : source + random.randint(1, 16)]
        yield bytes(mutant)


def decode_bounded(decode: Callable[[bytes], tuple[object, int]], data: bytes) -> None:
    """Let the decoder make what it will of it: a message, or `DecodeError`; nothing else, nothing big."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    with suppress(DecodeError):
        _, end = decode(data)
        assert end <= len(data)
    _, peak = tracemalloc.get_traced_memory()
    assert peak - before <= BYTES_PER_FRAME_BYTE * len(data) + BYTES_ALWAYS, data.hex()


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("case", all_cases(), ids=str)
@pytest.mark.usefixtures("traced")
def test_damaged_frames_are_refused_within_bounds(case: Case) -> None:
    random = Random(str(case))
    frame = case.encode(case.sample(random))
    assert case.decode(frame)[1] == len(frame)
    form = "flexible" if case.version >= case.module.FLEXIBLE_SINCE else "legacy"
    for mutant in (*planted(frame, form), *mutated(frame, random)):
        decode_bounded(case.decode, mutant)


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_every_truncated_frame_is_refused(case: Case) -> None:
    frame = case.encode(case.sample(Random(str(case))))
    for end in range(len(frame)):
        with pytest.raises(DecodeError):
            case.decode(frame[:end])


@pytest.mark.parametrize("case", all_cases(), ids=str)
@pytest.mark.usefixtures("traced")
def test_noise_is_refused_or_read_within_bounds(case: Case) -> None:
    assert case.version <= case.module.MAX_VERSION  # loaded now: what that takes is not the decoder's
    random = Random(str(case))
    for size in (0, 1, 2, 3, 5, 8, 13, 64, 1000):
        decode_bounded(case.decode, random.randbytes(size))
        decode_bounded(case.decode, bytes(size))
        decode_bounded(case.decode, b"\x01" * size)


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_unsupported_versions_are_refused(case: Case) -> None:
    module = case.module
    for version in (module.MIN_VERSION - 1, module.MAX_VERSION + 1, -1, 32767):
        with pytest.raises(DecodeError):
            Case(case.message, case.direction, version).decode(bytes(100))


@pytest.mark.parametrize("header_version", [0, 1])
@pytest.mark.usefixtures("traced")
def test_damaged_response_headers_are_refused_within_bounds(header_version: int) -> None:
    frame = b"\x00\x00\x00\x07\x02\x05\x03abc\x06\x00"
    for mutant in (*planted(frame, "legacy"), *planted(frame, "flexible"), *mutated(frame, Random(7))):
        decode_bounded(lambda data: decode_response_header(data, 0, header_version), mutant)


@pytest.mark.parametrize("api_version", [8, 9])
@pytest.mark.usefixtures("traced")
def test_damaged_request_headers_are_refused_within_bounds(api_version: int) -> None:
    frame = b"\x00\x03\x00" + bytes([api_version]) + b"\x00\x00\x00\x07\x00\x05rdkaf\x01\x05\x03abc"
    for mutant in (*planted(frame, "legacy"), *planted(frame, "flexible"), *mutated(frame, Random(8))):
        decode_bounded(decode_request_header, mutant)
