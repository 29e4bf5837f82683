"""Which row goes where, and what the tasks make of it."""

import pickle
import random
import socket
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from penstock.client.raw import RawClient, TopicPartition, UnknownPartitionError
from penstock.records.partitioner import partition_for
from penstock.spark.errors import OptionError
from penstock.spark.options import write_options
from penstock.spark.sink_schema import SinkColumns
from penstock.spark.writing import BatchWriter, Sink, Spread, refuse_overwrite

PLAIN = SinkColumns("value", None, None, None, None, None)
KEYED = SinkColumns("value", "key", None, None, None, None)
TOLD = SinkColumns("value", "key", None, "partition", None, None)


def spread(partitions: int) -> Spread:
    info = SimpleNamespace(partitions=tuple(range(partitions)))
    client = SimpleNamespace(describe=lambda names: dict.fromkeys(names, info))
    return Spread(cast(RawClient, client), random.Random(1))


def rows(values: Sequence[int], **columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [str(value) for value in values]} | columns)


def placed(spreading: Spread, batch: pa.RecordBatch, columns: SinkColumns) -> dict[int, list[int]]:
    found = {}
    for at, part in spreading.by_partition("t", batch, columns):
        assert at.topic == "t"
        assert at.partition not in found, "one piece per partition"
        found[at.partition] = [int(value) for value in part.column("value").to_pylist()]
    return found


def test_keys_decide_and_order_is_kept() -> None:
    keys = [f"key-{number % 7}" for number in range(100)]
    found = placed(spread(4), rows(range(100), key=keys), KEYED)
    assert sorted(value for part in found.values() for value in part) == list(range(100))
    for partition, values in found.items():
        assert values == sorted(values)
        assert {partition_for(keys[value].encode(), 4) for value in values} == {partition}


def test_rows_without_a_key_stick_and_then_move_on() -> None:
    spreading = spread(3)
    found = placed(spreading, rows(range(6_000)), PLAIN)
    assert sorted(len(values) for values in found.values()) == [2_000, 2_000, 2_000]
    assert all(values[1] == values[0] + 1 for values in found.values())


def test_small_batches_fill_one_partition_before_the_next() -> None:
    spreading = spread(3)
    used = [next(iter(placed(spreading, rows(range(100)), PLAIN))) for _ in range(20)]
    assert len(set(used)) == 2
    assert len(set(used[:10])) == 1


def test_a_told_partition_outranks_the_key() -> None:
    keys, told = ["a", "a", None], pa.array([2, None, 1], pa.int32())
    found = placed(spread(3), rows([0, 1, 2], key=pa.array(keys), partition=told), TOLD)
    by_key = partition_for(b"a", 3)
    wanted: dict[int, list[int]] = {}
    for value, partition in ((0, 2), (1, by_key), (2, 1)):
        wanted.setdefault(partition, []).append(value)
    assert found == wanted


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_partition_that_is_not_there(wrong: int) -> None:
    batch = rows([0], key=["a"], partition=pa.array([wrong], pa.int32()))
    with pytest.raises(UnknownPartitionError, match=f"no partition {wrong}") as raised:
        placed(spread(3), batch, TOLD)
    assert raised.value.at == TopicPartition("t", wrong)


def test_no_rows_go_nowhere() -> None:
    assert placed(spread(3), rows([]), PLAIN) == {}


def test_a_writer_travels_to_the_executors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:  # whether anybody is there is all that is asked
        options = write_options(
            {"kafka.bootstrap.servers": f"127.0.0.1:{broker.getsockname()[1]}", "topic": "t"}
        )
        made = BatchWriter(options, StructType([StructField("value", StringType())]))
    travelled = pickle.loads(pickle.dumps(made))
    assert travelled._sink == made._sink == Sink(options, PLAIN)


def test_a_topic_is_only_appended_to() -> None:
    with pytest.raises(OptionError, match="appended"):
        refuse_overwrite(overwrite=True)
    assert refuse_overwrite(overwrite=False) is None
