"""Coroutine tests run on a loop of their own, and Ctrl-C means the same in every test."""

import asyncio
import gc
import inspect
import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _ordinary_ctrl_c() -> Iterator[None]:
    """A Spark that another test shares this process with has a handler of its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def no_collection() -> Iterator[None]:
    """What is freed is freed because nobody refers to it any more."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True
