"""Brokers to lean on, and the bound on what they may take meanwhile."""

from collections.abc import Iterator

import pytest

from penstock.testing import BrokerProcess, broker


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process
