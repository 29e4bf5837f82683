"""A name may be another topic's by the time a write by name arrives: what was meant for the old one leaves it alone."""

import asyncio
import random

import pytest

from penstock.coordination import nodes
from penstock.coordination.memory import MemoryStore
from penstock.coordination.metadata import MetadataStore, NewTopic
from penstock.coordination.node_format import MetadataError
from penstock.coordination.nodes import PartitionState, Removed
from penstock.coordination.tree import MULTI_BYTES_MAX, ConflictError, Create
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError

ALONE = PartitionState(replicas=(1,), isr=(1,), leader=1)


async def _metadata(store, seed):
    metadata = MetadataStore(await store.connect(), random.Random(seed))
    await metadata.load()
    return metadata


async def _made_again(partitions=2, configs=None):
    """Two processes, one of which has not heard yet that the topic is another one."""
    store = MemoryStore()
    metadata = await _metadata(store, 1)
    (old,) = await metadata.create_topics([NewTopic("t", [ALONE] * partitions, configs or {})])
    late = await _metadata(store, 2)
    await metadata.delete_topic("t")
    (new,) = await metadata.create_topics([NewTopic("t", [ALONE] * partitions, configs or {})])
    assert (new.version, late.image.topics["t"]) == (old.version, old)
    return store, late, new


WRITES = [
    lambda late: late.delete_topic("t"),
    lambda late: late.set_topic_configs("t", {"retention.ms": "1"}),
    lambda late: late.create_partitions("t", [ALONE]),
    lambda late: late.drop_partitions(late.image.topics["t"], {1: Removed(0, 0, 1)}, {}, []),
]


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_by_name_never_changes_the_topic_that_came_after(write):
    store, late, new = await _made_again()
    with pytest.raises(ConflictError):
        await write(late)
    assert (await _metadata(store, 3)).image.topics == {"t": new}
    assert late.image.topics == {"t": new}, "who decides again has to see what there is"


@pytest.mark.parametrize(
    "write",
    [
        lambda metadata, meant: metadata.delete_topic("t", meant),
        lambda metadata, meant: metadata.alter_topic_configs("t", lambda _: {"retention.ms": "1"}, meant),
    ],
)
async def test_what_waited_for_its_turn_changes_what_it_was_asked_to_change(write):
    store = MemoryStore()
    metadata = await _metadata(store, 1)
    (old,) = await metadata.create_topics([NewTopic("t", [ALONE], {})])
    async with metadata._turn:
        waiting = asyncio.ensure_future(write(metadata, old.id))
        await asyncio.sleep(0)
        other = await _metadata(store, 2)
        await other.delete_topic("t")
        (new,) = await other.create_topics([NewTopic("t", [ALONE], {})])
        await metadata._reload()
    with pytest.raises(ApiError) as refused:
        await waiting
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata.image.topics == {"t": new}


async def test_a_topic_whose_deletion_takes_several_writes_is_dead_with_the_first():
    store = MemoryStore()
    metadata = await _metadata(store, 1)
    wide = PartitionState(replicas=tuple(range(100_000, 100_100)), isr=(100_000,), leader=100_000)
    await metadata.create_topics([NewTopic("t", [wide] * (MULTI_BYTES_MAX // 100), {})])
    late = await _metadata(store, 2)
    written = []
    honest = metadata._tree.multi

    async def first_only(operations):
        if written:
            raise ConflictError("/", "the process is gone")
        written.append(operations)
        return await honest(operations)

    metadata._tree.multi = first_only
    with pytest.raises(ConflictError):
        await metadata.delete_topic("t")
    metadata._tree.multi = honest
    assert metadata.image.orphans(), "the rest of the deletion is still to come"
    (new,) = await metadata.create_topics([NewTopic("t", [ALONE], {})])
    with pytest.raises(ConflictError):
        await late.set_topic_configs("t", {"retention.ms": "1"})
    assert late.image.topics == {"t": new}


async def test_an_image_stays_that_of_one_cluster():
    """A session that is renewed may lead to another store: what that does not know of is not deleted here."""
    metadata = await _metadata(MemoryStore(), 1)
    (topic,) = await metadata.create_topics([NewTopic("t", [ALONE], {})])
    wiped, other = MemoryStore(), MemoryStore()
    foreign = await _metadata(other, 2)
    for _ in range(5):
        await foreign.next_producer_id_block()
    for store in (wiped, other):
        metadata.attach(await store.connect())
        with pytest.raises(MetadataError, match="cluster"):
            await metadata.load()
        assert metadata.image.topics == {"t": topic}
    assert await (await wiped.connect()).get(nodes.CLUSTER) is None, (
        "nobody names a cluster in the place of another"
    )


async def test_a_snapshot_that_cannot_be_read_changes_nothing():
    store = MemoryStore()
    metadata = await _metadata(store, 1)
    (topic,) = await metadata.create_topics([NewTopic("t", [ALONE], {})])
    await (await store.connect()).multi([Create(nodes.broker_path(7), b"{}")])
    with pytest.raises(MetadataError):
        await metadata.load()
    assert metadata.image.topics == {"t": topic}
