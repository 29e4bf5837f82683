"""Offsets in options and checkpoints."""

import json

from penstock.client.raw import TopicPartition
from penstock.spark.offsets import StreamOffset, named, parse_numbers, to_tree

ORDERS_0, ORDERS_10, AUDIT_0 = (
    TopicPartition("orders", 0),
    TopicPartition("orders", 10),
    TopicPartition("audit", 0),
)


def test_the_text_of_equal_offsets_is_equal() -> None:
    tree = to_tree({ORDERS_10: 5, ORDERS_0: 1, AUDIT_0: 2})
    other = to_tree({AUDIT_0: 2, ORDERS_0: 1, ORDERS_10: 5})
    assert json.dumps(tree) == json.dumps(other) == '{"audit": {"0": 2}, "orders": {"0": 1, "10": 5}}'


def test_a_stream_offset_survives_the_checkpoint() -> None:
    offset = StreamOffset({ORDERS_0: 5}, {"orders": "id"}, first=False, origin={ORDERS_0: 3})
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    assert StreamOffset.from_json(StreamOffset({ORDERS_0: 5}, first=True).to_json()).first


def test_a_checkpoint_of_the_official_source_is_read() -> None:
    offset = StreamOffset.from_json({"orders": {"0": 5, "10": 7}})
    assert offset == StreamOffset({ORDERS_0: 5, ORDERS_10: 7})


def test_offsets_from_a_checkpoint_can_be_pasted_into_an_option() -> None:
    pasted = json.dumps(StreamOffset({ORDERS_0: 5}, {"orders": "id"}, origin={ORDERS_0: 1}).to_json())
    assert parse_numbers("startingOffsets", pasted) == {ORDERS_0: 5}


def test_many_partitions_are_named_briefly() -> None:
    assert named([ORDERS_10, ORDERS_0]) == "orders-0, orders-10"
    assert named((TopicPartition("t", n) for n in range(9)), most=2) == "t-0, t-1 and 7 more"
