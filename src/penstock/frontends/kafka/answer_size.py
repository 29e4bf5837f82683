"""How much is in an answer: long ones are encoded in a thread, since nobody else is served meanwhile."""

from penstock.wire.kafka.primitives import Struct


def has_more_entries(answer: Struct, most: int) -> bool:
    """In all its lists; looked at no further than needed."""
    found, left = 0, [answer]
    while left:
        each = left.pop()
        for entries in (getattr(each, name) for name in each.__slots__):
            if isinstance(entries, list) and entries:
                found += len(entries)
                if found > most:
                    return True
                if isinstance(entries[0], Struct):
                    left += entries
    return False
