import pytest

from penstock.storage.retention import RetentionLimits, SegmentSummary, expired_segments, held_bytes

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


@pytest.mark.parametrize(("retention_ms", "count"), [(3999, 1), (2500, 1), (1999, 3), (999, 4)])
def test_an_empty_segment_is_as_old_as_what_lies_behind_it(retention_ms: int, count: int) -> None:
    """Compaction left nothing of it, or its files are gone: then others may have what lay there."""
    segments = [*SEGMENTS[:1], SegmentSummary(10, 20, 0, -1), *SEGMENTS[2:]]
    assert expired(RetentionLimits(retention_ms=retention_ms), segments=segments) == count


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


# -- with an archive --


def held(limits: RetentionLimits, *, start: int = 0, committed: int = END) -> int:
    return held_bytes(SEGMENTS, limits, start, committed, NOW)


@pytest.mark.parametrize(("archived", "count"), [(0, 0), (9, 0), (10, 1), (29, 2), (39, 3), (40, 4), (99, 4)])
@pytest.mark.parametrize("limits", [RetentionLimits(0, -1), RetentionLimits(-1, 0), RetentionLimits(0, 0)])
def test_neither_age_nor_size_takes_what_is_not_archived(
    limits: RetentionLimits, archived: int, count: int
) -> None:
    waiting = limits._replace(archived_offset=archived)
    assert expired(waiting) == count
    assert held(waiting) == (4 - count) * 100


def test_being_archived_alone_takes_nothing() -> None:
    assert expired(RetentionLimits(archived_offset=END)) == 0
    assert expired(RetentionLimits(2500, 300, archived_offset=END)) == 2


def test_only_what_retention_would_take_counts_as_held() -> None:
    assert held(RetentionLimits(2500, -1, archived_offset=10)) == 100
    assert held(RetentionLimits(-1, 100, archived_offset=0)) == 300
    assert held(RetentionLimits(-1, -1, archived_offset=0)) == 0
    assert held(RetentionLimits(0, 0, archived_offset=0), committed=20) == 200
    assert held(RetentionLimits(0, 0)) == 0


def test_deleted_records_go_without_the_archive_but_no_further() -> None:
    limits = RetentionLimits(0, 0, archived_offset=0)
    assert expired(limits, start=25) == 2
    assert held(limits, start=25) == 200
    assert expired(limits, start=40) == 4  # nothing is left that an archive could take
    assert held(limits, start=40) == 0
