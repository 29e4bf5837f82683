"""The cluster's secret: made once, whoever comes first, also in a store that an earlier release wrote."""

import random

from penstock.coordination import nodes
from penstock.coordination.memory import MemoryStore
from penstock.coordination.metadata import SECRET_BYTES, MetadataStore
from penstock.coordination.tree import Delete, Set


async def loaded(store: MemoryStore, seed: int) -> MetadataStore:
    metadata = MetadataStore(await store.connect(), random.Random(seed))
    await metadata.load()
    return metadata


async def test_all_brokers_have_the_one_that_the_first_made() -> None:
    store = MemoryStore()
    first, second = await loaded(store, 1), await loaded(store, 2)
    assert len(first.image.secret) == SECRET_BYTES
    assert second.image.secret == first.image.secret
    assert (await loaded(MemoryStore(), 3)).image.secret != first.image.secret


async def test_a_store_of_an_earlier_release_gets_one() -> None:
    store = MemoryStore()
    tree = (await loaded(store, 1)).tree
    await tree.multi([Delete(nodes.SECRET)])
    first, second = await loaded(store, 2), await loaded(store, 3)
    assert len(first.image.secret) == SECRET_BYTES
    assert second.image.secret == first.image.secret


async def test_the_image_forgets_one_that_is_gone_and_takes_another() -> None:
    metadata = await loaded(MemoryStore(), 1)
    for change in (
        await metadata.tree.multi([Set(nodes.SECRET, nodes.encode_secret(b"another"))]),
        await metadata.tree.multi([Delete(nodes.SECRET)]),
    ):
        metadata.image.apply(change)
        assert metadata.image.secret in (b"another", b"")
    assert metadata.image.secret == b""
