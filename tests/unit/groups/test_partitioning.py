"""Kafka's tools look for a group where `String.hashCode` says; long names must cost nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.partitioning import java_hash, partition_of


def by_the_book(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


# As Java prints them.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("orders", -1008770331),
        ("polygenelubricants", -(2**31)),
        ("\N{GRINNING FACE}", 1772899),
    ],
)
def test_known_hashes(text: str, value: int) -> None:
    assert java_hash(text) == value


@given(st.text(st.characters(), max_size=80))
def test_every_text_hashes_as_in_java(text: str) -> None:
    assert java_hash(text) == by_the_book(text)


@pytest.mark.parametrize("size", [299, 300, 301, 1023, 1024, 32_767, 32_768, 32_769, 40_000])
@pytest.mark.parametrize("letter", ["\uffff", "x", "\ud800"])
def test_long_texts_too(size: int, letter: str) -> None:
    text = "".join(letter if at % 7 else chr(at % 251) for at in range(size))
    assert java_hash(text) == by_the_book(text)
    assert 0 <= partition_of(text, 50) < 50


def test_the_lowest_hash_has_a_partition() -> None:
    assert partition_of("polygenelubricants", 50) == 0
