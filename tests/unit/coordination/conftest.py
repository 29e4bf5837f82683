"""Coroutine tests run on a loop of their own; `stores` gives each contract test every implementation in turn."""

import asyncio
import inspect
import itertools

import pytest

from penstock.coordination.embedded import EmbeddedStore
from penstock.coordination.memory import MemoryStore
from penstock.coordination.zookeeper import Address, ZooKeeperStore

# Long enough for a machine that is busy with other tests.
SESSION_TIMEOUT_S = 30.0
_chroots = itertools.count()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


class MemoryStores:
    async def open(self):
        return MemoryStore()

    async def reopen(self, store):
        await store.close()
        return store


class EmbeddedStores:
    def __init__(self, path):
        self._path = path

    async def open(self):
        return await EmbeddedStore.open(self._path)

    async def reopen(self, store):
        await store.close()
        return await self.open()


class ZooKeeperStores:
    def __init__(self, address):
        self.address = address

    async def open(self, **options):
        return ZooKeeperStore(self.address, **{"session_timeout_s": SESSION_TIMEOUT_S, **options})

    async def reopen(self, store):
        await store.close()
        return await self.open()


@pytest.fixture
def zookeeper_stores(zookeeper):
    """Each test has its own place in one server."""
    return ZooKeeperStores(Address.parse(f"{zookeeper.connect}/tests/{next(_chroots)}"))


@pytest.fixture(params=["memory", "embedded", "zookeeper"])
def stores(request, tmp_path):
    if request.param == "zookeeper":
        return request.getfixturevalue("zookeeper_stores")
    return MemoryStores() if request.param == "memory" else EmbeddedStores(tmp_path / "coordination.db")
