"""How much is in an answer: long ones are encoded in a thread, since nobody else is served meanwhile, and very large
ones when there is memory for them."""

import sys
from typing import Any, NamedTuple

from penstock.core.limits import ANSWER_ENTRY_BYTES, ANSWER_WAITING_BYTES_MIN
from penstock.wire.kafka.primitives import Struct

_PLAIN_BYTES = 4  # of a field that is neither text nor bytes nor a list, about


class AnswerSize(NamedTuple):
    entries: int  # in all its lists
    encoded_bytes: int  # about

    @property
    def waiting_bytes(self) -> int:
        """What it takes while it waits, not encoded: what it names is known by others, too."""
        return max(self.entries * ANSWER_ENTRY_BYTES, ANSWER_WAITING_BYTES_MIN)


def answer_size(answer: Any, entries_max: int = sys.maxsize) -> AnswerSize:
    """Looked at no further than to the first list with which there are more entries."""
    if isinstance(answer, bytes):
        return AnswerSize(0, len(answer))
    if isinstance(answer, list):  # pieces that are ready
        return AnswerSize(len(answer), sum(map(len, answer)))
    entries = size_bytes = 0
    left = [answer]
    while left:
        each = left.pop()
        for name in each.__slots__:
            value = getattr(each, name)
            kind = type(value)
            if kind is str or kind is bytes:
                size_bytes += len(value)
            elif kind is list:
                entries += len(value)
                if entries > entries_max:
                    return AnswerSize(entries, size_bytes)
                if value and isinstance(value[0], Struct):
                    left += value
                else:
                    size_bytes += sum(len(plain) if type(plain) is str else _PLAIN_BYTES for plain in value)
            elif isinstance(value, Struct):
                left.append(value)
            else:
                size_bytes += _PLAIN_BYTES
    return AnswerSize(entries, size_bytes)
