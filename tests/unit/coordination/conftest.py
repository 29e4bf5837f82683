"""Coroutine tests run on a loop of their own; `stores` gives each contract test every implementation in turn."""

import asyncio
import inspect

import pytest

from penstock.coordination.embedded import EmbeddedStore
from penstock.coordination.memory import MemoryStore


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


@pytest.fixture(params=["memory", "embedded"])
def stores(request, tmp_path):
    return MemoryStores() if request.param == "memory" else EmbeddedStores(tmp_path / "coordination.db")
