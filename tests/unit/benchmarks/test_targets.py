"""A benchmark that misjudges its own figures is worse than none: targets, medians, quantiles, the report."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks import report
from benchmarks.load import LoadError
from benchmarks.metrics import histogram_quantile
from benchmarks.results import Result
from benchmarks.rows import UNSYNCED, Row
from benchmarks.run import MEASUREMENTS
from benchmarks.spark import SPARK_ROWS, Checks

VERSIONS = {"penstock": "1", "kafka": "4", "python": "Python 3", "java": "java 17", "librdkafka": "2"}
MACHINE = {"cpu": "two", "memory": "8 GB", "system": "Linux 6"}
PAGE = """\
# TYPE lag_seconds histogram
lag_seconds_bucket{le="0.001"} 90
lag_seconds_bucket{le="0.05"} 99
lag_seconds_bucket{le="+Inf"} 100
lag_seconds_count 100
lag_seconds_sum 1
"""


def result(ours: list[float], theirs: list[float], measurement: str = "m", metric: str = "x") -> Result:
    rounds = {
        "penstock": [{metric: value} for value in ours],
        "kafka": [{metric: value} for value in theirs],
    }
    return Result(measurement, "2030-01-01", 1.0, VERSIONS, MACHINE, rounds)


def row(**changes: object) -> Row:
    return replace(Row("title", "m", "x", "MB/s", target=1.4), **changes)  # type: ignore[arg-type]


def test_the_ratio_is_that_of_the_medians_and_a_wild_round_does_not_move_it() -> None:
    assert result([300, 310, 9000], [200, 1, 210]).ratio("x", "penstock", "kafka") == 310 / 200


def test_a_target_is_met_from_the_right_side() -> None:
    assert row().met(1.4)
    assert not row().met(1.39)
    assert row(higher_is_better=False).met(1.4)
    assert not row(higher_is_better=False).met(1.41)


def test_an_absolute_target_is_held_against_our_own_figure() -> None:
    seconds = row(target=3, absolute=True, higher_is_better=False, unit="s")
    line = report.line(result([4], [40]), seconds)
    assert "| 0.10 | ≤ 3 s | **no** |" in line


def test_a_missing_contender_is_shown_as_missing_and_not_judged() -> None:
    line = report.line(result([], [200]), row())
    assert line == "| title | - | 200 MB/s | - | ≥ 1.4 |  |"


@pytest.mark.parametrize("each", [UNSYNCED[0], SPARK_ROWS[1]], ids=lambda each: each.title)
def test_the_report_waits_for_everybody_who_is_compared(each: Row) -> None:
    both = result([1], [1], each.measurement)
    everybody = ["penstock", "penstock-synced", "kafka", "kafka-flush", "spark-kafka", "spark-kafka-tuned"]
    assert report.complete({each.measurement: replace(both, rounds={key: [{"x": 1}] for key in everybody})})
    everybody.remove(each.theirs or "")
    assert not report.complete(
        {each.measurement: replace(both, rounds={key: [{"x": 1}] for key in everybody})}
    )


def test_contenders_that_find_different_rows_void_the_run() -> None:
    checks = Checks()
    checks.once("topic", "ours", lambda: (3, 77))
    checks.once("topic", "theirs", lambda: (3, 77))
    checks.once("another topic", "ours", lambda: (4, 1))
    with pytest.raises(LoadError, match="a third has rows of its own"):
        checks.once("topic", "a third", lambda: (3, 78))


def test_every_row_names_a_measurement_and_contenders_that_take_part_in_it() -> None:
    taking_part = {item.key: {who.key for who in item.contenders} for item in MEASUREMENTS}
    for each in (row for section in report.SECTIONS for row in section.rows):
        assert {each.ours, each.theirs or each.ours} <= taking_part[each.measurement], each.title


def test_a_quantile_is_the_upper_bound_of_its_bucket() -> None:
    assert histogram_quantile(PAGE, "lag_seconds", 0.9) == 0.001
    assert histogram_quantile(PAGE, "lag_seconds", 0.99) == 0.05
    assert histogram_quantile(PAGE, "lag_seconds", 0.991) == float("inf")


@pytest.mark.parametrize(
    ("page", "reason"), [("", "no histogram"), (PAGE.replace("9", "0").replace("100", "0"), "no obs")]
)
def test_a_page_without_the_histogram_is_an_error(page: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        histogram_quantile(page, "lag_seconds", 0.99)
