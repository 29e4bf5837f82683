"""The metadata store: what is written is in the image, after a reload too, and nothing is ever half there."""

import asyncio
import json
import random
from contextlib import asynccontextmanager

import pytest
from tests.unit.partition_states import write_states

from penstock.controller.image_queries import checks_of
from penstock.coordination import nodes
from penstock.coordination.image import ClusterImage
from penstock.coordination.memory import Fault, MemoryStore
from penstock.coordination.metadata import MetadataStore, NewTopic
from penstock.coordination.node_format import MetadataError
from penstock.coordination.nodes import PartitionState, TopicRecord
from penstock.coordination.producer_id_blocks import PRODUCER_ID_BLOCK
from penstock.coordination.registration import BrokerRegistration
from penstock.coordination.tree import (
    CHANGES_KEPT_MAX,
    Change,
    ConflictError,
    ConnectionLostError,
    FeedGapError,
    Set,
)
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError

ALONE = PartitionState(replicas=(1,), isr=(1,), leader=1)


def _new(name, partitions=1, **configs):
    return NewTopic(
        name, [ALONE] * partitions, {key.replace("_", "."): value for key, value in configs.items()}
    )


def _view(image):
    """Everything a reader can see."""
    return (
        image.cluster_id,
        image.topics,
        image.topics_by_id,
        image.brokers,
        image.broker_configs,
        image.default_broker_configs,
    )


async def _metadata(store, seed=1, listener=lambda _: None):
    metadata = MetadataStore(await store.connect(), random.Random(seed), listener)
    await metadata.load()
    return metadata


@asynccontextmanager
async def opened(stores):
    store = await stores.open()
    try:
        yield store, await _metadata(store)
    finally:
        await store.close()


async def _same_after_reload(store, metadata):
    fresh = await _metadata(store, seed=99)
    assert _view(fresh.image) == _view(metadata.image)


async def test_the_cluster_is_named_once(stores):
    async with opened(stores) as (store, metadata):
        assert len(metadata.image.cluster_id) == 22
        await _same_after_reload(store, metadata)


async def test_topics_are_created_with_ids_partitions_and_configs(stores):
    async with opened(stores) as (store, metadata):
        orders, other = await metadata.create_topics([_new("orders", 3, retention_ms="5"), _new("other")])
        assert metadata.image.topics == {"orders": orders, "other": other}
        assert metadata.image.topics_by_id == {orders.id: orders, other.id: other}
        assert orders.configs == {"retention.ms": "5"}
        assert orders.partitions == (ALONE,) * 3
        await _same_after_reload(store, metadata)


async def test_a_topic_that_exists_is_refused_with_all_its_companions(stores):
    async with opened(stores) as (store, metadata):
        await metadata.create_topics([_new("a")])
        with pytest.raises(ApiError) as caught:
            await metadata.create_topics([_new("b"), _new("a")])
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert list(metadata.image.topics) == ["a"]
        await _same_after_reload(store, metadata)


async def test_a_topic_made_by_another_broker_meanwhile_is_a_conflict_and_then_known(stores):
    async with opened(stores) as (store, metadata):
        other = await _metadata(store, seed=2)
        await other.create_topics([_new("a")])
        with pytest.raises(ConflictError):
            await metadata.create_topics([_new("a")])
        assert _view(metadata.image) == _view(other.image)


async def test_topic_ids_are_never_reserved_ones_nor_look_like_options():
    class Scripted(random.Random):
        def __init__(self, *values):
            super().__init__()
            self._values = list(values)

        def randbytes(self, n):
            return self._values.pop(0)

    good = bytes(range(16))
    metadata = MetadataStore(None, Scripted(bytes(16), bytes(15) + b"\x01", b"\xf8" + bytes(15), good))
    assert metadata.random_id() == good


async def test_a_deleted_topic_leaves_nothing_and_its_name_returns_with_a_new_id(stores):
    async with opened(stores) as (store, metadata):
        (first,) = await metadata.create_topics([_new("a", 5)])
        assert await metadata.delete_topic("a") == first
        assert metadata.image.topics == metadata.image.topics_by_id == {}
        assert metadata.image.orphans() == []
        (second,) = await metadata.create_topics([_new("a")])
        assert second.id != first.id
        await _same_after_reload(store, metadata)


@pytest.mark.parametrize(
    "write",
    [
        lambda metadata: metadata.delete_topic("none"),
        lambda metadata: metadata.create_partitions("none", [ALONE]),
        lambda metadata: metadata.set_topic_configs("none", {}),
    ],
)
async def test_an_unknown_topic_is_refused(stores, write):
    async with opened(stores) as (_, metadata):
        with pytest.raises(ApiError) as caught:
            await write(metadata)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_partitions_are_added(stores):
    async with opened(stores) as (store, metadata):
        (before,) = await metadata.create_topics([_new("a", 2, retention_ms="5")])
        after = await metadata.create_partitions("a", [ALONE] * 2)
        assert (after.id, len(after.partitions), after.configs) == (before.id, 4, before.configs)
        await _same_after_reload(store, metadata)


async def test_what_a_newer_version_noted_of_a_topic_outlives_every_write_of_this_one():
    store = MemoryStore()
    metadata = await _metadata(store)
    (topic,) = await metadata.create_topics([_new("a")])
    record = json.loads(nodes.encode_topic(TopicRecord(topic.id, 1, {})))
    tree = await store.connect()
    await tree.multi([Set("/topics/a", json.dumps({**record, "later": {"1": [5, 7]}}).encode())])
    metadata = await _metadata(store, seed=2)
    await metadata.alter_topic_configs("a", lambda now: {**now, "retention.ms": "1"})
    await metadata.create_partitions("a", [ALONE])
    again = await _metadata(store, seed=3)
    assert again.image.topics["a"].unknown == {"later": {"1": [5, 7]}}
    assert len(again.image.topics["a"].partitions) == 2


async def test_concurrent_config_changes_build_on_each_other(stores):
    async with opened(stores) as (store, metadata):
        await metadata.create_topics([_new("a")])
        await asyncio.gather(
            *(
                metadata.alter_topic_configs("a", lambda now, key=key: {**now, key: "1"})
                for key in ("retention.ms", "segment.ms", "flush.ms")
            ),
            *(
                metadata.alter_broker_configs(None, lambda now, key=key: {**now, key: "1"})
                for key in ("x", "y")
            ),
        )
        assert metadata.image.topics["a"].configs == {"retention.ms": "1", "segment.ms": "1", "flush.ms": "1"}
        assert metadata.image.default_broker_configs == {"x": "1", "y": "1"}
        await _same_after_reload(store, metadata)


async def test_a_refused_alteration_writes_nothing(stores):
    async with opened(stores) as (_, metadata):
        await metadata.create_topics([_new("a")])

        def refuse(now):
            raise ApiError(ErrorCode.INVALID_CONFIG)

        with pytest.raises(ApiError):
            await metadata.alter_topic_configs("a", refuse)
        await metadata.set_topic_configs("a", {"retention.ms": "1"})
        assert metadata.image.topics["a"].configs == {"retention.ms": "1"}


async def test_broker_configs_for_one_and_for_all(stores):
    async with opened(stores) as (store, metadata):
        await metadata.set_broker_configs(None, {"log.segment.bytes": "1"})
        await metadata.set_broker_configs(1, {"listeners": "x"})
        await metadata.set_broker_configs(1, {"listeners": "y"})
        assert metadata.image.default_broker_configs == {"log.segment.bytes": "1"}
        assert metadata.image.broker_configs == {1: {"listeners": "y"}}
        await _same_after_reload(store, metadata)


async def test_a_partition_state_on_a_stale_epoch_is_a_conflict(stores):
    async with opened(stores) as (store, metadata):
        await metadata.create_topics([_new("a")])
        await write_states(metadata, {("a", 0): ALONE.with_leader(1)})
        with pytest.raises(ConflictError):
            await write_states(metadata, {("a", 0): ALONE.with_leader(1)})
        assert metadata.image.topics["a"].partitions[0].leader_epoch == 1
        await _same_after_reload(store, metadata)


async def test_a_broker_registers_and_its_epoch_grows_with_every_incarnation(stores):
    async with opened(stores) as (store, metadata):
        me = BrokerRegistration(id=1, identity="disk-1", host="h", port=9092, rack="r")
        first = await metadata.register_broker(me)
        assert metadata.image.brokers == {1: first}
        again = await _metadata(store, seed=2)
        second = await again.register_broker(me)
        assert second.epoch > first.epoch
        with pytest.raises(ApiError) as caught:
            await again.register_broker(BrokerRegistration(1, "disk-2", "h", 9093))
        assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        store = await stores.reopen(store)
        restarted = await _metadata(store)
        assert restarted.image.brokers == {}
        third = await restarted.register_broker(me)
        assert third.epoch > second.epoch
        await store.close()


async def test_a_registration_whose_stale_one_vanishes_meanwhile_succeeds():
    store = MemoryStore()
    old = await store.connect()
    me = BrokerRegistration(id=1, identity="disk-1", host="h", port=9092)
    first = MetadataStore(old, random.Random(1))
    await first.load()
    await first.register_broker(me)
    tree = await store.connect()
    multi = tree.multi

    async def too_late(operations):
        store.expire(old.session)
        return await multi(operations)

    again = MetadataStore(tree, random.Random(2))
    await again.load()
    tree.multi = too_late
    registered = await again.register_broker(me)
    assert again.image.brokers == {1: registered}


async def test_producer_id_blocks_never_overlap(stores):
    async with opened(stores) as (store, metadata):
        other = await _metadata(store, seed=2)
        blocks = await asyncio.gather(
            *(each.next_producer_id_block() for each in (metadata, other) for _ in range(5))
        )
        store = await stores.reopen(store)
        blocks.append(await (await _metadata(store)).next_producer_id_block())
        starts = sorted(block.start for block in blocks)
        assert starts == [number * PRODUCER_ID_BLOCK for number in range(11)]
        assert {len(block) for block in blocks} == {PRODUCER_ID_BLOCK}
        await store.close()


async def test_two_thousand_partitions_are_one_change_and_eight_thousand_still_one_topic(stores):
    async with opened(stores) as (store, metadata):
        before = metadata.image.number
        await metadata.create_topics([_new("wide", 2000)])
        assert metadata.image.number == before + 1
        await metadata.create_topics([_new("wider", 8_000)])
        assert metadata.image.number > before + 2
        assert len(metadata.image.topics["wider"].partitions) == 8_000
        await _same_after_reload(store, metadata)
        await metadata.delete_topic("wider")
        assert list(metadata.image.topics) == ["wide"]
        assert metadata.image.orphans() == []
        await _same_after_reload(store, metadata)


async def test_thousands_of_partitions_are_rewritten_however_many_brokers_are_checked_with_them():
    metadata = await _metadata(MemoryStore())
    for broker in range(60):
        await metadata.register_broker(BrokerRegistration(broker, f"disk {broker}", "localhost", 9092))
    await metadata.create_topics([_new("t", partitions=3000)])

    def change(image):
        topic = image.topics["t"]
        states = {(topic.id, number): state.with_leader(1) for number, state in enumerate(topic.partitions)}
        return states, checks_of(image, range(60))

    await metadata.rewrite_partitions(change)
    assert {state.leader_epoch for state in metadata.image.topics["t"].partitions} == {1}


async def test_a_creation_interrupted_between_its_parts_leaves_no_topic_and_is_swept():
    store = MemoryStore()
    tree = await store.connect()
    metadata = MetadataStore(tree, random.Random(1))
    await metadata.load()
    made = tree.multi
    parts = 0

    async def lose_the_second(operations):
        nonlocal parts
        parts += 1
        if parts == 2:
            tree.fail_next(Fault.REQUEST_LOST)
        return await made(operations)

    tree.multi = lose_the_second
    with pytest.raises(ConnectionLostError):
        await metadata.create_topics([_new("wide", 8_000)])
    tree.multi = made
    fresh = await _metadata(store)
    assert fresh.image.topics == {}
    assert await fresh.sweep_orphans() == 1
    assert (await tree.children(nodes.PARTITIONS)) == ()
    await fresh.create_topics([_new("wide", 3)])
    assert len(fresh.image.topics["wide"].partitions) == 3


async def test_a_lost_answer_does_not_leave_the_image_behind():
    store = MemoryStore()
    tree = await store.connect()
    metadata = MetadataStore(tree, random.Random(1))
    await metadata.load()
    tree.fail_next(Fault.ANSWER_LOST)
    with pytest.raises(ConnectionLostError):
        await metadata.create_topics([_new("a")])
    await metadata.create_topics([_new("b")])
    assert sorted(metadata.image.topics) == ["a", "b"]


async def test_a_follower_hears_what_others_write_also_after_a_gap():
    store = MemoryStore()
    writer = await _metadata(store)
    heard = asyncio.Queue()
    follower = await _metadata(store, seed=2, listener=heard.put_nowait)
    heard.get_nowait()
    following = asyncio.ensure_future(follower.follow())
    (topic,) = await writer.create_topics([_new("a")])
    assert (await heard.get()).topics == (topic,)
    await writer.delete_topic("a")
    delta = await heard.get()
    assert (delta.topics, delta.topics_gone) == ((), (topic,))
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await writer.create_topics([_new("b")])
    for number in range(CHANGES_KEPT_MAX):
        await writer.set_topic_configs("b", {"retention.ms": str(number)})
    following = asyncio.ensure_future(follower.follow())
    while follower.image.number < writer.image.number:
        await heard.get()
    assert _view(follower.image) == _view(writer.image)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_the_image_notices_a_gap_and_skips_what_it_has():
    image = ClusterImage()
    image.number = 5
    assert image.apply(Change(5, 4, ())).topics == ()
    assert image.number == 5
    with pytest.raises(FeedGapError):
        image.apply(Change(8, 7, ()))
    assert image.number == 5


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b'{"id": 3}', b'{"id":"AAAA","partitions":1,"configs":{}}']
)
async def test_a_node_that_holds_nonsense_is_named(data):
    store = MemoryStore()
    metadata = await _metadata(store)
    await metadata.create_topics([_new("a")])
    tree = await store.connect()
    await tree.multi([Set("/topics/a", data)])
    with pytest.raises(MetadataError, match="/topics/a"):
        await _metadata(store)
