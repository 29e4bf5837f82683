"""What counts as flat."""

from __future__ import annotations

import pytest
from benchmarks.sparkmem import HEAP_BYTES, Sizes, Used, judge

MB = 1_000_000


def sizes(*, beside_heap: int = 500, live: int = 60, peak: int = 520, workers: int = 480) -> Sizes:
    now = Used(170 * MB, HEAP_BYTES + (beside_heap - 170) * MB, 450 * MB)
    return Sizes(1000, now, live * MB, HEAP_BYTES + peak * MB, workers * MB)


def test_what_settles_is_flat() -> None:
    assert judge([sizes(), sizes(beside_heap=900), sizes(beside_heap=560, live=100, peak=590, workers=500)])


@pytest.mark.parametrize(
    "last", [sizes(beside_heap=600), sizes(live=120), sizes(peak=620), sizes(workers=600)]
)
def test_growth_anywhere_is_not(last: Sizes) -> None:
    assert not judge([sizes(), last])
