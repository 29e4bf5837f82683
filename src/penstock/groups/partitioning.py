"""Which partition of `__consumer_offsets` keeps a group: Java's `String.hashCode`, so that Kafka's tools agree."""

from functools import lru_cache

_INT_MIN = -(2**31)
# Group names whose hash is remembered: every request of a group asks for it.
_REMEMBERED_MAX = 10_000
_CHARS_MAX = 300


def java_hash(text: str) -> int:
    """Over UTF-16 code units, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def partition_of(group_id: str, partitions: int) -> int:
    # Very long names are not remembered, whoever sends many of them.
    return (
        _remembered(group_id, partitions) if len(group_id) <= _CHARS_MAX else _partition(group_id, partitions)
    )


def _partition(group_id: str, partitions: int) -> int:
    value = java_hash(group_id)
    return (0 if value == _INT_MIN else abs(value)) % partitions


_remembered = lru_cache(_REMEMBERED_MAX)(_partition)
