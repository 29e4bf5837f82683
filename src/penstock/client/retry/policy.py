"""The retry policy: how often, how long between, and what becomes of what never works."""

import re
from dataclasses import dataclass, field

from penstock.client.errors import ClientError

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_TIME = r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)"
_FACTOR = 2.0
# Bounded before it is multiplied out: 2.0**1100 would overflow.
_DOUBLINGS_MAX = 64


class BadBackoffError(ClientError):
    """A back-off that cannot be read."""


def parse_backoff(text: str) -> tuple[float, float]:
    """`1s→5m` (or `1s..5m`, `1s->5m`): the first and the longest wait, in seconds; one time alone is both."""
    found = re.fullmatch(rf"\s*{_TIME}\s*(?:(?:→|\.\.|->)\s*{_TIME})?\s*", text)
    if found is None:
        raise BadBackoffError(f"backoff={text!r} is not a back-off: write 1s→5m, 1s..5m or 30s")
    first = float(found[1]) * _UNITS_S[found[2]]
    longest = first if found[3] is None else float(found[3]) * _UNITS_S[found[4]]
    if longest < first:
        raise BadBackoffError(f"backoff={text!r} ends before it begins: write the shorter wait first")
    return first, longest


@dataclass(frozen=True, slots=True)
class Retry:
    """What happens to a message whose body raises.

    It is tried `attempts` times in all. After a failure it waits in `<topic>.<group>.retry`: the first wait of the
    back-off, then twice as long each time, up to the last. After the last failure it goes to `<topic>.<group>.dlq`,
    or, with `dead_letter=False`, is dropped with a line in the log.

    With `ordered_by_key`, later messages of a key wait behind one that is being retried.
    """

    attempts: int = 5
    backoff: str = "1s→5m"
    dead_letter: bool = True
    ordered_by_key: bool = False
    _waits: tuple[float, float] = field(init=False, repr=False, compare=False, default=(0.0, 0.0))

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ClientError(f"attempts={self.attempts}: a message is tried at least once")
        object.__setattr__(self, "_waits", parse_backoff(self.backoff))

    def wait_seconds(self, failures: int) -> float:
        """How long a message that has failed so often waits for its next try."""
        first, longest = self._waits
        doublings = min(failures - 1, _DOUBLINGS_MAX)
        return float(min(longest, first * _FACTOR**doublings))

    @property
    def longest_seconds(self) -> float:
        return self._waits[1]

    @property
    def steps(self) -> int:
        """How many different waits there are."""
        different = range(1, min(self.attempts, _DOUBLINGS_MAX + 2))
        waits = {self.wait_seconds(failures) for failures in different}
        return max(1, len(waits))

    def step(self, failures: int) -> int:
        """The number of the wait that follows so many failures: 0 for the first, the last for all the longest."""
        return min(failures, self.steps) - 1


def retry_topic(topic: str, group: str) -> str:
    return f"{topic}.{group}.retry"


def dead_letter_topic(topic: str, group: str) -> str:
    return f"{topic}.{group}.dlq"
