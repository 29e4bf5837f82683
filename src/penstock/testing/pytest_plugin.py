"""The pytest fixtures users get with the package: a real broker for the session, and topics of its own for each test.

`penstock_settings` is there to be overridden. Sessions that ask for none of these pay nothing: imports come late.
"""

import re
import secrets
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.testing.process import BrokerProcess

_NAME_CHARS_MAX = 100


class MakeTopic(Protocol):
    def __call__(self, *, partitions: int = 1, configs: "Mapping[str, str] | None" = None) -> str: ...


@pytest.fixture(scope="session")
def penstock_settings() -> "Mapping[str, str]":
    """Settings of the brokers: override it in your conftest.py."""
    return {}


@pytest.fixture(scope="session")
def penstock_broker(penstock_settings: "Mapping[str, str]") -> "Iterator[BrokerProcess]":
    """One broker for all tests of the session (of each worker, with xdist)."""
    from penstock.testing.process import broker  # noqa: PLC0415

    with broker(penstock_settings) as process:
        yield process


@pytest.fixture
def penstock_own_broker(penstock_settings: "Mapping[str, str]") -> "Iterator[BrokerProcess]":
    """A broker of the test's own, empty at its start: for what others would see, such as lists of all topics."""
    from penstock.testing.process import broker  # noqa: PLC0415

    with broker(penstock_settings) as process:
        yield process


@pytest.fixture
def penstock_make_topic(
    penstock_broker: "BrokerProcess", request: pytest.FixtureRequest
) -> "Iterator[MakeTopic]":
    """Makes topics that no other test has, and deletes them after the test."""
    from penstock.client.admin.admin import Admin  # noqa: PLC0415

    # A test before this one may have ended in the midst of what it did to the broker.
    _bring_back(penstock_broker)
    admin = Admin(penstock_broker.bootstrap)
    made: list[str] = []

    def make(*, partitions: int = 1, configs: "Mapping[str, str] | None" = None) -> str:
        name = _own_name(request)
        admin.create(name, partitions=partitions, configs=configs)
        made.append(name)
        return name

    yield make
    _bring_back(penstock_broker)
    # Another one: after a fault the first may wait for seconds before it connects again.
    admin = Admin(penstock_broker.bootstrap)
    left = {topic.name for topic in admin.topics()}
    for name in made:
        if name in left:  # the test may have deleted it
            admin.delete(name)


@pytest.fixture
def penstock_topic(penstock_make_topic: MakeTopic) -> str:
    """The name of a new topic with one partition; it is gone after the test."""
    return penstock_make_topic()


@pytest.fixture
def penstock_group(request: pytest.FixtureRequest) -> str:
    """A group's name that no other test has."""
    return _own_name(request)


def _own_name(request: pytest.FixtureRequest) -> str:
    """After the test, so that logs tell whose it is."""
    readable = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:_NAME_CHARS_MAX]
    return f"{readable}-{secrets.token_hex(4)}"


def _bring_back(broker: "BrokerProcess") -> None:
    if not broker.is_running:
        broker.start()
