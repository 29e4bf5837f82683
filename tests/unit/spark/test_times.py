"""Which offsets a time means, while others go on writing."""

from collections.abc import Mapping

import pytest
from tests.unit.spark.fake_cluster import FakeCluster, FakeLog

from penstock.client.raw import OffsetAt, TopicPartition
from penstock.spark.cluster import resolve
from penstock.spark.options import Position

AT = TopicPartition("t", 0)


class Busy(FakeCluster):
    """After each request somebody writes a record, now."""

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, OffsetAt]:
        answers = super().offsets(wanted, committed=committed)
        self.logs[AT].end += 1
        self.logs[AT].times += (1000,)
        return answers


@pytest.mark.parametrize("position", [{"timestamp": 500}, {"timestamps": {AT: 500}}])
def test_what_is_written_while_a_time_is_asked_for_is_read(position: dict[str, object]) -> None:
    cluster = Busy()
    cluster.create("t", FakeLog(0, 7, times=(1,) * 7))
    since = Position(option="startingTimestamp", **position)  # type: ignore[arg-type]
    assert resolve(cluster, since, [AT], committed=True, latest_when_none=True) == {AT: 7}
