"""Clients from Maven, npm and Debian, unchanged, against a live broker (`make clients`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.clients.kcat_driver import KcatDriver
from tests.clients.process_driver import JavaDriver, KafkaJsDriver
from tests.integration.scenarios.catalog import SCENARIOS, Scenario
from tests.integration.scenarios.peer import running_peer
from tests.integration.scenarios.play import play

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.scenarios.play import Driver
    from tools.peers import BrokerProcess

pytestmark = pytest.mark.clients
DRIVERS = [
    pytest.param(driver, id=driver.name, marks=pytest.mark.ecosystem(driver.name))
    for driver in (JavaDriver, KafkaJsDriver, KcatDriver)
]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_peer() as peer:
        yield peer


@pytest.fixture(scope="module", params=DRIVERS)
def driver(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[Driver]:
    client = request.param()
    yield client
    client.close()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_client_does_what_it_should(scenario: Scenario, driver: Driver, broker: BrokerProcess) -> None:
    play(scenario, driver, broker)
