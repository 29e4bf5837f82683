"""The Python clients, unchanged, against a live broker process (`PENSTOCK_PEER=kafka`: against Apache Kafka)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.scenarios.catalog import SCENARIOS, Scenario
from tests.integration.scenarios.drivers.aiokafka_ import AiokafkaDriver
from tests.integration.scenarios.drivers.confluent import ConfluentDriver
from tests.integration.scenarios.drivers.kafka_python import KafkaPythonDriver
from tests.integration.scenarios.peer import running_peer
from tests.integration.scenarios.play import play

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.scenarios.drivers.base import PythonDriver
    from tools.peers import BrokerProcess

# The libraries' own deprecated calls are not this project's warnings.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
DRIVERS = [
    pytest.param(driver, id=driver.name, marks=pytest.mark.ecosystem(driver.name))
    for driver in (ConfluentDriver, KafkaPythonDriver, AiokafkaDriver)
]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_peer() as peer:
        yield peer


@pytest.fixture(scope="module", params=DRIVERS)
def driver(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[PythonDriver]:
    client = request.param()
    yield client
    client.close()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_client_does_what_it_should(scenario: Scenario, driver: PythonDriver, broker: BrokerProcess) -> None:
    play(scenario, driver, broker)
