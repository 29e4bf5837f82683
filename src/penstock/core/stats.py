"""Counting on the hot path: plain integers, turned into metrics only when somebody asks."""

_BUCKETS = 26  # powers of two of a microsecond: 1 µs to 33 s, and everything above


class Durations:
    """A histogram whose buckets are powers of two, so that finding one is a single operation."""

    __slots__ = ("counts", "total_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (_BUCKETS + 1)
        self.total_seconds = 0.0

    def observe(self, seconds: float) -> None:
        bucket = int(seconds * 1e6).bit_length()
        self.counts[min(_BUCKETS, bucket)] += 1
        self.total_seconds += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[str, int]]:
        """(upper bound in seconds, observations at or below it), as Prometheus wants them."""
        rows = []
        total = 0
        for bucket, count in enumerate(self.counts):
            total += count
            bound = "+Inf" if bucket == _BUCKETS else repr(2**bucket / 1e6)
            rows.append((bound, total))
        return rows

    def quantile(self, share: float) -> float:
        """An upper bound of the given quantile, in seconds."""
        rank = share * self.count
        total = 0
        for bucket, count in enumerate(self.counts):
            total += count
            if total >= rank:
                return float(2**bucket / 1e6)
        return float("inf")


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
