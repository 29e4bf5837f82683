"""Where a replayed record is from, in headers behind its own."""

import pyarrow as pa

from penstock.spark.pipelines.replaying.headers import FROM, OFFSET, TIMESTAMP, origin, with_origin
from penstock.spark.schema import ARROW_HEADERS


def added(offset: int, timestamp: int) -> list[dict[str, object]]:
    return [
        {"key": OFFSET, "value": b"%d" % offset},
        {"key": TIMESTAMP, "value": b"%d" % timestamp},
        {"key": FROM, "value": b"orders/abc"},
    ]


def test_own_headers_stay_and_those_of_the_replay_come_behind() -> None:
    own: list[list[dict[str, object]] | None] = [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        None,
        [],
        [{"key": "", "value": b""}],
    ]
    headers = pa.array(own, ARROW_HEADERS)
    offsets, times = pa.array([7, 8, 9, 2**40]), pa.array([0, -1, 1_700_000_000_000, 5])
    made = with_origin(headers, offsets, times, "orders/abc").to_pylist()
    assert made == [
        (before or []) + added(offset, timestamp)
        for before, offset, timestamp in zip(own, offsets.to_pylist(), times.to_pylist(), strict=True)
    ]


def test_a_slice_has_its_own_headers_only() -> None:
    headers = pa.array([[{"key": "a", "value": b"1"}], [{"key": "b", "value": b"2"}]], ARROW_HEADERS)
    made = with_origin(headers[1:], pa.array([4]), pa.array([5]), "orders/abc").to_pylist()
    assert made == [[{"key": "b", "value": b"2"}, *added(4, 5)]]


def test_the_last_ones_count() -> None:
    twice = [{"key": OFFSET, "value": b"1"}, {"key": FROM, "value": b"x/1"}, *added(9, 0)]
    assert origin(twice) == ("orders/abc", 9)
    assert origin(None) is None
    assert origin([{"key": OFFSET, "value": b"1"}]) is None
    assert origin([{"key": OFFSET, "value": b"one"}, {"key": FROM, "value": b"x/1"}]) is None
    assert origin([{"key": OFFSET, "value": None}, {"key": FROM, "value": None}]) is None
