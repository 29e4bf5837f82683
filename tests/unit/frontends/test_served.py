"""Handlers are loaded when they are asked for; what ApiVersions tells before that is what they say themselves."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.waiting import until

from penstock.frontends.kafka import apis, served
from penstock.frontends.kafka.apis import WarmUp, all_apis, served_source
from penstock.frontends.kafka.registry import REGISTRY, TRANSACTION_APIS, advertised
from penstock.frontends.kafka.served import SERVED
from penstock.wire.kafka.api_keys import ApiKey

ASKED_FOR = """
import sys
from penstock.frontends.kafka.registry import REGISTRY

assert not [name for name in sys.modules if name.startswith("penstock.frontends.kafka.handlers.")]
assert REGISTRY.find(9999) is None
assert REGISTRY.find(3).handler is not None
print(*[name for name in sys.modules if name.startswith("penstock.frontends.kafka.handlers.")])
"""


def test_the_table_is_what_handlers_say() -> None:
    told = Path(served.__file__).read_text()
    assert told == served_source(), "run `make codegen` and commit its output"


def test_a_handler_is_loaded_by_whoever_asks_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", ASKED_FOR], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["penstock.frontends.kafka.handlers.metadata"]


def test_what_only_brokers_ask_for_is_not_advertised() -> None:
    internal = {api.key for api in all_apis() if api.internal}
    assert {key for key, _, _ in advertised(transactions=True)} == {*SERVED} - internal
    assert {key for key, _, _ in advertised(transactions=False)} == {*SERVED} - internal - TRANSACTION_APIS
    assert ApiKey.ALTER_PARTITION in internal
    with pytest.raises(KeyError):
        REGISTRY[9999]


async def test_all_are_loaded_soon_after_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[int] = []
    monkeypatch.setattr(apis, "load", loaded.append)
    monkeypatch.setattr(apis, "_REST_SECONDS", 0.0)
    warm_up = WarmUp(asyncio.get_running_loop())
    warm_up.start()
    assert loaded == [ApiKey.API_VERSIONS, ApiKey.METADATA]  # before anybody is served
    await until(lambda: len(loaded) == len(SERVED) + 2)
    assert loaded[2:] == [*SERVED]
    stopped = WarmUp(asyncio.get_running_loop())
    stopped.start()
    stopped.stop()
    assert stopped._timer is not None
    assert stopped._timer.cancelled()
    assert len(loaded) == len(SERVED) + 4
