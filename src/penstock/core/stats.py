"""Counting on the hot path: plain integers, turned into metrics only when somebody asks."""

from bisect import bisect_left
from itertools import accumulate

_BUCKETS = 26  # powers of two of a microsecond: 1 µs to 33 s, and everything above


_LAG_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class Durations:
    """A histogram whose buckets are powers of two, so that finding one is a single operation."""

    __slots__ = ("counts", "total_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (_BUCKETS + 1)
        self.total_seconds = 0.0

    def observe(self, seconds: float) -> None:
        bucket = int(seconds * 1e6).bit_length()
        self.counts[bucket if bucket < _BUCKETS else _BUCKETS] += 1  # noqa: FURB136 - `min` is a call
        self.total_seconds += seconds

    def cumulative(self) -> list[tuple[str, int]]:
        """(upper bound in seconds, observations at or below it), as Prometheus wants them."""
        bounds = [repr(2**bucket / 1e6) for bucket in range(_BUCKETS)] + ["+Inf"]
        return list(zip(bounds, accumulate(self.counts), strict=True))


class Lags:
    """A histogram with the bounds that targets are set at; for what is observed a few times a second."""

    __slots__ = ("_bounds", "counts", "total_seconds")

    def __init__(self, bounds: tuple[float, ...] = _LAG_BOUNDS) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total_seconds = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.total_seconds += seconds

    def cumulative(self) -> list[tuple[str, int]]:
        totals = list(accumulate(self.counts))
        return list(zip([*map(repr, self._bounds), "+Inf"], totals, strict=True))


class RequestStats:
    """Durations of requests, by API key."""

    __slots__ = ("by_api",)

    def __init__(self) -> None:
        self.by_api: dict[int, Durations] = {}

    def observe(self, api_key: int, seconds: float) -> None:
        durations = self.by_api.get(api_key)
        if durations is None:
            durations = self.by_api[api_key] = Durations()
        durations.observe(seconds)
