"""Values that several families of requests draw from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    import random

ILLEGAL_NAMES = ("", ".", "..", "a/b", "with space", "é", "x" * 250, "semi;colon", "new\nline", "a:b", "\x00")
UNKNOWN_PARTITIONS = (-1, -7, 3, 99, 2**31 - 1)
BAD_EPOCHS = (1, 5, 2**31 - 1, -2, -5)


def unknown_id(rng: random.Random) -> bytes:
    return rng.randbytes(16)


def some(rng: random.Random, items: list[str], most: int = 4) -> list[str]:
    return rng.sample(items, rng.randint(1, min(most, len(items))))


__all__ = ["BAD_EPOCHS", "ILLEGAL_NAMES", "UNKNOWN_PARTITIONS", "ZERO_UUID", "some", "unknown_id"]
