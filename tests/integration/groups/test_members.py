"""Consumers of three client libraries, each a process: they join, leave, crash and come back."""

from collections.abc import Iterator

import pytest
from tests.integration.groups import stories
from tests.integration.groups.crew import Crew, crew
from tests.integration.groups.stories import COOPERATIVE, PARTITIONS
from tests.integration.raw import wait_until

from penstock.testing import BrokerProcess, broker

CLIENTS = ("confluent", "kafka-python", "aiokafka")
TEN = 10


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker(stories.SETTINGS) as process:
        yield process


@pytest.fixture(params=CLIENTS)
def members(request: pytest.FixtureRequest, running: BrokerProcess) -> Iterator[Crew]:
    with crew(request.param, running.bootstrap, f"work-{next(stories.names)}", PARTITIONS) as team:
        yield team


@pytest.fixture(params=["confluent", "kafka-python"])
def cooperative(request: pytest.FixtureRequest, running: BrokerProcess) -> Iterator[Crew]:
    """aiokafka knows eager rebalances only."""
    with crew(request.param, running.bootstrap, f"work-{next(stories.names)}", PARTITIONS) as team:
        yield team


@pytest.fixture
def confluent(running: BrokerProcess) -> Iterator[Crew]:
    with crew("confluent", running.bootstrap, f"work-{next(stories.names)}", PARTITIONS) as team:
        yield team


def test_members_share_the_work_and_take_over_from_one_that_leaves(members: Crew) -> None:
    stories.share_the_work_and_leave(members)


def test_a_crashed_members_work_goes_on_where_it_committed(members: Crew) -> None:
    stories.crash(members)


def test_a_static_member_restarts_without_a_rebalance(members: Crew) -> None:
    stories.restart_a_static_member(members)


def test_cooperative_members_keep_what_they_need_not_give_up(cooperative: Crew) -> None:
    stories.keep_what_need_not_be_given_up(cooperative)


@pytest.mark.parametrize(
    ("client", "strategy", "static"),
    [
        ("confluent", COOPERATIVE, False),
        pytest.param("confluent", "range", False, marks=pytest.mark.soak),
        pytest.param("confluent", "range", True, marks=pytest.mark.soak),
        pytest.param("kafka-python", "range", False, marks=pytest.mark.soak),
        pytest.param("kafka-python", COOPERATIVE, False, marks=pytest.mark.soak),
        pytest.param("aiokafka", "range", False, marks=pytest.mark.soak),
    ],
)
def test_ten_members_are_restarted_one_by_one_under_load(
    client: str, strategy: str, static: bool, running: BrokerProcess
) -> None:
    with crew(client, running.bootstrap, f"work-{next(stories.names)}", TEN) as ten:
        stories.restart_one_by_one_under_load(ten, TEN, strategy, static=static)


def test_a_broker_killed_in_the_middle_of_a_rebalance(confluent: Crew, running: BrokerProcess) -> None:
    first = confluent.hire()
    confluent.wait_for_owners(first, partitions=PARTITIONS)
    second = confluent.hire()
    wait_until(lambda: bool(first.revocations), "the rebalance has begun")
    running.kill()
    running.start()
    confluent.wait_for_owners(first, second, partitions=PARTITIONS)
    confluent.produce(40, PARTITIONS)
    confluent.wait_for_all_processed()
