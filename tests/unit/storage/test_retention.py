import pytest

from penstock.storage.retention import RetentionLimits, SegmentSummary, expired_segments

# Four segments of ten records and 100 bytes each; the newest record of each is at 1000, 2000, 3000, 4000.
SEGMENTS = [SegmentSummary(at * 10, at * 10 + 10, 100, at * 1000 + 1000) for at in range(4)]
END = 40
NOW = 5000


def expired(
    limits: RetentionLimits,
    *,
    segments: list[SegmentSummary] = SEGMENTS,
    start: int = 0,
    committed: int = END,
) -> int:
    return expired_segments(segments, limits, start, committed, NOW)


@pytest.mark.parametrize(
    ("retention_ms", "count"),
    [(-1, 0), (5000, 0), (4000, 0), (3999, 1), (2500, 2), (1000, 3), (999, 4), (0, 4)],
)
def test_by_time_the_newest_record_decides(retention_ms: int, count: int) -> None:
    assert expired(RetentionLimits(retention_ms=retention_ms)) == count


@pytest.mark.parametrize(
    ("retention_bytes", "count"), [(-1, 0), (400, 0), (301, 0), (300, 1), (101, 2), (0, 4)]
)
def test_by_size_the_log_stays_at_least_as_large_as_asked(retention_bytes: int, count: int) -> None:
    assert expired(RetentionLimits(retention_bytes=retention_bytes)) == count


@pytest.mark.parametrize(("start", "count"), [(0, 0), (9, 0), (10, 1), (35, 3), (40, 3)])
def test_segments_below_the_log_start_go_but_never_the_active_one(start: int, count: int) -> None:
    assert expired(RetentionLimits(), start=start) == count


@pytest.mark.parametrize(("committed", "count"), [(0, 0), (9, 0), (10, 1), (39, 3), (40, 4)])
def test_nothing_at_or_above_the_high_watermark_goes(committed: int, count: int) -> None:
    assert expired(RetentionLimits(0, 0), committed=committed) == count
    assert expired(RetentionLimits(), start=40, committed=committed) == min(count, 3)


def test_rules_add_up() -> None:
    assert expired(RetentionLimits(2500, 250), start=10) == 2
    assert expired(RetentionLimits(-1, 150), start=10) == 2


def test_a_young_segment_protects_the_ones_behind_it() -> None:
    late = [SEGMENTS[0], SEGMENTS[1]._replace(max_timestamp=NOW + 10**9), *SEGMENTS[2:]]
    assert expired(RetentionLimits(retention_ms=0), segments=late) == 1


@pytest.mark.parametrize("timestamp", [None, -1])
def test_without_a_timestamp_there_is_no_age(timestamp: int | None) -> None:
    unknown = [SEGMENTS[0]._replace(max_timestamp=timestamp), *SEGMENTS[1:]]
    assert expired(RetentionLimits(retention_ms=0), segments=unknown) == 0


def test_an_empty_active_segment_stays() -> None:
    segments = [*SEGMENTS[:3], SegmentSummary(30, 30, 0, -1)]
    assert expired(RetentionLimits(0, 0), segments=segments, committed=30) == 3
