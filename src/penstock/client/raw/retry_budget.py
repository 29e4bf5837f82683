"""How long one operation is tried again: a deadline, a number of tries, and growing pauses between them."""

import random
import time

from penstock.client.raw.errors import ConnectionLostError, RawError, TimedOutError, UnreachableError
from penstock.client.raw.options import RawOptions

# Clients that lost the same broker must not all come back at the same moment.
_JITTER = 0.2
_DOUBLINGS_MAX = 16


class RetryBudget:
    def __init__(self, what: str, options: RawOptions, timeout_ms: int | None = None) -> None:
        self._what = what
        self._timeout_s = (options.api_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        self._retries_max = options.retries_max
        self._pause_s = options.retry_backoff_ms / 1000
        self._pause_max_s = options.retry_backoff_max_ms / 1000
        self.retries = 0
        self._deadline = time.monotonic() + self._timeout_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._deadline or self.retries >= self._retries_max

    def renew(self) -> None:
        """Something went right: the next trouble gets the whole time again."""
        self.retries = 0
        self._deadline = time.monotonic() + self._timeout_s

    def pause(self, cause: RawError) -> None:
        """Wait before the next try; raises when there is none, or when trying again would not help."""
        if not cause.retriable:
            raise cause
        if self.over:
            raise self.given_up(cause) from cause
        self.retries += 1
        time.sleep(min(self.next_pause_s(), self.left_s))

    def next_pause_s(self) -> float:
        doubled = (
            self._pause_s * (1 << min(self.retries - 1, _DOUBLINGS_MAX)) if self.retries else self._pause_s
        )
        return min(doubled, self._pause_max_s) * random.uniform(1 - _JITTER, 1 + _JITTER)

    def given_up(self, cause: RawError) -> TimedOutError:
        kind = UnreachableError if isinstance(cause, ConnectionLostError) else TimedOutError
        advice = ": see that the broker runs (`penstock doctor`)" if kind is UnreachableError else ""
        return kind(
            f"{self._what}: gave up after {self.retries + 1} tries in {self._timeout_s:g} s; "
            f"last, {cause}{advice}"
        )
