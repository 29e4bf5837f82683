"""Everything in the coordination store says its version: what a newer release wrote is refused and left as it is."""

import asyncio
import json
import random
import sqlite3
from contextlib import closing

import pytest
from tests.unit.coordination.test_zookeeper import bare, connected

from penstock.coordination import nodes
from penstock.coordination.embedded import EmbeddedStore
from penstock.coordination.memory import MemoryStore
from penstock.coordination.metadata import MetadataStore, NewTopic
from penstock.coordination.node_format import MetadataError
from penstock.coordination.nodes import PartitionState
from penstock.coordination.registration import BrokerRegistration, decode_life, encode_life
from penstock.coordination.tree import Create, Node, Set
from penstock.coordination.zookeeper.layout import LayoutError
from penstock.core.formats import NewerFormatError

REFUSED = r"has version 2, and this release reads up to 1: start the newer release that wrote it"
SETTINGS = {"penstock.draining": "true"}
KINDS = (
    "cluster",
    "topics",
    "partitions",
    "brokers",
    "lives",
    "configs",
    "controller",
    "producer-ids",
    "secret",
)


async def _metadata(store):
    metadata = MetadataStore(await store.connect(), random.Random(1), lambda _: None)
    await metadata.load()
    return metadata


async def _with_one_of_each():
    store = MemoryStore()
    metadata = await _metadata(store)
    state = PartitionState(replicas=(1,), isr=(1,), leader=1)
    await metadata.create_topics([NewTopic("orders", [state], {"retention.ms": "5"})])
    await metadata.register_broker(BrokerRegistration(1, "identity", "host", 9092), clean=True)
    await metadata.set_broker_configs(1, SETTINGS)
    await metadata.next_producer_id_block()
    await metadata.tree.multi([Create(nodes.CONTROLLER, nodes.encode_controller(1))])
    return store, metadata


async def _node(metadata, kind):
    """The path of the one node of a kind, and its members."""
    (path,) = (
        path
        for path, node in (await metadata.tree.snapshot()).nodes.items()
        if path.split("/")[1] == kind and node.data not in (b"", b"{}")
    )
    return path, json.loads((await metadata.tree.get(path)).data)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_node_of_a_newer_release_is_refused_by_its_name_and_stays(kind):
    store, metadata = await _with_one_of_each()
    path, fields = await _node(metadata, kind)
    assert fields["version"] == 1
    newer = json.dumps(fields | {"version": 2}).encode()
    await metadata.tree.multi([Set(path, newer)])
    with pytest.raises(MetadataError, match=f"{path} is not understood: .*{REFUSED}"):
        await (await _metadata(store)).next_producer_id_block()
    assert (await metadata.tree.get(path)).data == newer


@pytest.mark.parametrize("kind", KINDS)
async def test_a_node_of_a_release_that_named_no_version_is_read(kind):
    store, metadata = await _with_one_of_each()
    path, fields = await _node(metadata, kind)
    del fields["version"]
    await metadata.tree.multi([Set(path, json.dumps(fields).encode())])
    again = await _metadata(store)
    assert again.image.topics["orders"].configs == {"retention.ms": "5"}
    assert again.image.brokers[1].host == "host"
    assert again.image.broker_configs == {1: SETTINGS}
    assert (await again.next_producer_id_block()).start > 0


async def test_the_version_of_broker_settings_is_no_setting():
    _, metadata = await _with_one_of_each()
    _, fields = await _node(metadata, "configs")
    assert fields == {"version": 1, **SETTINGS}
    assert metadata.image.broker_configs == {1: SETTINGS}


def _user_version(path, version=None):
    with closing(sqlite3.connect(path)) as database:
        if version is not None:
            database.execute(f"PRAGMA user_version={version}")
        return database.execute("PRAGMA user_version").fetchone()[0]


async def test_a_database_of_a_newer_release_is_refused_and_untouched(tmp_path):
    path = tmp_path / "metadata.db"
    await (await EmbeddedStore.open(path)).close()
    assert _user_version(path) == 1
    _user_version(path, 2)
    before = path.read_bytes()
    with pytest.raises(NewerFormatError, match=f"metadata.db {REFUSED}"):
        await EmbeddedStore.open(path)
    assert path.read_bytes() == before


async def test_a_database_of_a_release_that_named_no_version_has_one_from_its_next_open_on(tmp_path):
    path = tmp_path / "metadata.db"
    store = await EmbeddedStore.open(path)
    await (await store.connect()).multi([Create("/a", b"1")])
    await store.close()
    _user_version(path, 0)
    store = await EmbeddedStore.open(path)
    assert (await (await store.connect()).get("/a")).data == b"1"
    await store.close()
    assert _user_version(path) == 1


async def test_a_place_in_zookeeper_that_a_newer_release_made_is_refused(zookeeper_stores):
    address = zookeeper_stores.address
    version = f"{address.chroot}/version"
    async with connected(address) as (tree,), bare(address) as client:
        await tree.multi([Create("/a", b"1")])
        assert (await asyncio.to_thread(client.get, version))[0] == b"1"
        for told, said in ((b"2", f"{version} {REFUSED}"), (b"two", "was not written by penstock")):
            await asyncio.to_thread(client.set, version, told)
            store = await zookeeper_stores.open()
            with pytest.raises(LayoutError, match=said):
                await store.connect()
            await store.close()
        await asyncio.to_thread(client.delete, version)
        async with connected(address) as (again,):
            assert (await again.get("/a")).data == b"1"
        assert (await asyncio.to_thread(client.get, version))[0] == b"1", "of a release that named none"


def test_a_life_that_the_last_release_wrote_is_read() -> None:
    """It told there that files were lost; now each log does (`storage.incomplete`)."""
    data = json.dumps({"incarnation": "a", "settled": False, "lost_files": True}).encode()
    life = decode_life("/lives/1", Node(data, version=3, created=0, modified=0))
    assert (life.incarnation, life.settled, life.version) == ("a", False, 3)
    assert b"lost" not in encode_life(life)
