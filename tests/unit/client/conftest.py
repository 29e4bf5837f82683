"""Ctrl-C means the same in every test: a Spark that another one shares this process with has a handler of its own."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _ordinary_ctrl_c() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
