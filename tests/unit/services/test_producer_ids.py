"""A producer id is given out once, across threads of control, failures and restarts."""

import asyncio
import random

import pytest

from penstock.coordination.memory import Fault, MemoryStore
from penstock.coordination.metadata import MetadataStore
from penstock.coordination.producer_id_blocks import PRODUCER_ID_BLOCK
from penstock.coordination.tree import CoordinationError
from penstock.services.producer_ids import ProducerIds


async def ids_of(store: MemoryStore) -> ProducerIds:
    metadata = MetadataStore(await store.connect(), random.Random(1))
    await metadata.load()
    return ProducerIds(metadata)


async def test_ids_ascend_and_one_block_serves_many_callers() -> None:
    ids = await ids_of(MemoryStore())
    got = await asyncio.gather(*(ids.next() for _ in range(PRODUCER_ID_BLOCK + 5)))
    assert sorted(got) == list(range(PRODUCER_ID_BLOCK + 5))


async def test_the_rest_of_a_block_is_lost_with_its_broker() -> None:
    store = MemoryStore()
    before = await (await ids_of(store)).next()
    after = await (await ids_of(store)).next()
    assert (before, after) == (0, PRODUCER_ID_BLOCK)


async def test_two_brokers_never_share_an_id() -> None:
    store = MemoryStore()
    first, second = await ids_of(store), await ids_of(store)
    got = await asyncio.gather(*(ids.next() for ids in (first, second) for _ in range(2500)))
    assert len(set(got)) == 5000


async def test_a_failed_block_is_not_given_from() -> None:
    store = MemoryStore()
    tree = await store.connect()
    metadata = MetadataStore(tree, random.Random(1))
    await metadata.load()
    ids = ProducerIds(metadata)
    tree.fail_next(Fault.REQUEST_LOST)
    with pytest.raises(CoordinationError):
        await ids.next()
    assert await ids.next() % PRODUCER_ID_BLOCK == 0
