"""Every generated codec, every version: what we write is what kio writes, and reading gives it back."""

import io
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from kio.serial import entity_reader, entity_writer
from tests.property.kafka_values import Case, all_cases

from penstock.wire.kafka.primitives import Struct

SETTINGS = settings(
    max_examples=16,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_codec_agrees_with_kio_and_round_trips(case: Case) -> None:
    write: Any = entity_writer(case.kio_class)
    read: Any = entity_reader(case.kio_class)

    @SETTINGS
    @given(case.messages())
    def check(message: Struct) -> None:
        encoded = case.encode(message)
        kio_message = case.to_kio(message)
        expected = io.BytesIO()
        write(expected, kio_message)
        assert encoded == expected.getvalue()
        assert case.decode(encoded) == (message, len(encoded))
        # Within a larger buffer, and through a view of it.
        framed = memoryview(b"head" + encoded + b"tail")
        assert case.decode(framed, 4) == (message, 4 + len(encoded))
        assert read(encoded, 0) == (kio_message, len(encoded))

    check()
