"""Offsets without records, between others that have some: who reads a log that nothing compacts is told (A4, Z1)."""

import pytest
from tests.unit.client.raw.fake import batch_at
from tests.unit.spark.fake_cluster import FakeCluster, FakeLog

from penstock.client.raw import Fetched, RawClient, TopicPartition
from penstock.records.batch import read_header
from penstock.records.relay import filler_batch
from penstock.spark.cluster import uncompacted
from penstock.spark.errors import HoleError
from penstock.spark.holes import Walk
from penstock.spark.options import read_options
from penstock.spark.planning import Range
from penstock.spark.reading import RangePartition, RangeReader
from penstock.spark.schema import arrow_schema, source_schema

AT = TopicPartition("orders", 0)


def batches(*firsts: int) -> memoryview:
    """Of two records each."""
    return memoryview(b"".join(batch_at(first, [b"v"] * 2) for first in firsts))


def found(start: int, end: int, *answers: memoryview) -> list[tuple[int, int]]:
    walk = Walk(Range(AT, start, end))
    return [*(hole for records in answers for hole in walk.over(records)), *walk.rest()]


def test_a_hole_is_where_no_batch_covers_an_offset() -> None:
    assert found(0, 6, batches(0, 2), batches(4)) == []
    # In front, between batches, between answers, at the end; all of it.
    assert found(0, 12, batches(2, 6), batches(10)) == [(0, 2), (4, 6), (8, 10)]
    assert found(0, 9, batches(0, 2)) == [(4, 9)]
    assert found(3, 9) == [(3, 9)]
    # A range may begin and end within batches, and a task's range within a hole.
    assert found(1, 5, batches(0, 2, 4)) == []
    assert found(3, 7, batches(2, 9)) == [(4, 7)]


def test_what_readers_do_not_see_is_no_hole() -> None:
    """Control records, such as close the gap at the end of a log, and offsets that a batch has beyond its records."""
    control = bytearray(filler_batch(4))
    assert read_header(control).is_control
    control[0:8] = (2).to_bytes(8, "big")
    sparse = bytearray(batch_at(6, [b"v"]))
    sparse[23:27] = (3).to_bytes(4, "big")
    assert found(0, 10, batches(0), memoryview(control), memoryview(sparse)) == []


def read(monkeypatch: pytest.MonkeyPatch, part: Range, *, whole: bool = True, **options: str) -> int:
    """The rows of a log that has the offsets 0 to 3 and 8 to 9."""
    answers = [Fetched(batches(0, 2, 8), (), 0, 10, 10)]
    monkeypatch.setattr(RawClient, "fetch", lambda *_, **__: iter(answers))
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "orders"} | options
    reader = RangeReader(read_options(given, streaming=False), arrow_schema(source_schema(headers=False)))
    return sum(batch.num_rows for batch in reader.read(RangePartition(part, None, whole=whole)))


def test_a_task_tells_of_a_hole(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    everything = Range(AT, 0, 10)
    with pytest.raises(HoleError, match="orders-0 has no records for the offsets 4 to 7"):
        read(monkeypatch, everything)
    assert read(monkeypatch, everything, failOnDataLoss="false") == 6
    assert "offsets 4 to 7" in caplog.text
    # Compacted, or nobody knows.
    assert read(monkeypatch, everything, whole=False) == 6
    # Known already; a part of it, too.
    known = {"penstock.holes": '{"orders": {"0": [[3, 8]]}}'}
    assert read(monkeypatch, everything, **known) == 6
    with pytest.raises(HoleError):
        read(monkeypatch, everything, **{"penstock.holes": '{"orders": {"0": [[5, 8]], "1": [[0, 9]]}}'})


def test_where_records_may_be_compacted_away_nothing_can_be_told() -> None:
    cluster = FakeCluster(policies={"both": frozenset({"compact", "delete"}), "mute": frozenset({"compact"})})
    for name in ("orders", "both", "mute"):
        cluster.create(name, FakeLog(0, 10))
    assert uncompacted(cluster, ["orders", "both", "mute", "gone"]) == {"orders"}
