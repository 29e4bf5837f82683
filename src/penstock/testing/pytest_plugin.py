"""The pytest fixture users get with the package: a real broker, once per test session."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.testing.process import BrokerProcess


@pytest.fixture(scope="session")
def penstock_broker() -> "Iterator[BrokerProcess]":
    from penstock.testing.process import broker  # noqa: PLC0415 - sessions that do not ask pay nothing

    with broker() as process:
        yield process
