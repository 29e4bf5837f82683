"""Consumers of three client libraries, each a process: they join, leave, crash and come back."""

from collections.abc import Iterator
from itertools import count

import pytest
from tests.integration.groups.crew import Crew, crew
from tests.integration.raw import wait_until

from penstock.testing import BrokerProcess, broker

CLIENTS = ("confluent", "kafka-python", "aiokafka")
PARTITIONS = 4
SETTINGS = {"group.initial.rebalance.delay.ms": "300", "group.min.session.timeout.ms": "1000"}
_names = count()


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker(SETTINGS) as process:
        yield process


@pytest.fixture(params=CLIENTS)
def members(request: pytest.FixtureRequest, running: BrokerProcess) -> Iterator[Crew]:
    with crew(request.param, running.bootstrap, f"work-{next(_names)}", PARTITIONS) as one:
        yield one


@pytest.fixture
def confluent(running: BrokerProcess) -> Iterator[Crew]:
    with crew("confluent", running.bootstrap, f"work-{next(_names)}", PARTITIONS) as one:
        yield one


def test_members_share_the_work_and_take_over_from_one_that_leaves(members: Crew) -> None:
    first, second = members.hire(), members.hire()
    members.wait_for_owners(first, second, partitions=PARTITIONS)
    members.produce(40, PARTITIONS)
    members.wait_for_all_processed()
    assert len(first.processed) + len(second.processed) == 40, "nobody left, so nothing came twice"
    second.stop()
    members.wait_for_owners(first, partitions=PARTITIONS)
    members.produce(20, PARTITIONS)
    members.wait_for_all_processed()


def test_a_crashed_members_work_goes_on_where_it_committed(members: Crew) -> None:
    first, second = members.hire(), members.hire()
    members.wait_for_owners(first, second, partitions=PARTITIONS)
    members.produce(40, PARTITIONS)
    wait_until(lambda: bool(second.processed), "the second works")
    second.kill()
    members.wait_for_owners(first, partitions=PARTITIONS)
    members.wait_for_all_processed()
    seen = [place[:2] for place in first.processed]
    assert len(seen) == len(set(seen)), "the one that stayed saw nothing twice"


def test_a_static_member_restarts_without_a_rebalance(members: Crew) -> None:
    first, second = members.hire(instance="one"), members.hire(instance="two")
    members.wait_for_owners(first, second, partitions=PARTITIONS)
    before = set(second.assigned)
    revocations = len(first.revocations)
    second.kill()
    third = members.hire(instance="two")
    members.wait_for_owners(first, third, partitions=PARTITIONS)
    assert third.assigned == before
    members.produce(40, PARTITIONS)
    members.wait_for_all_processed()
    assert len(first.revocations) == revocations, "the other one noticed nothing"


def test_cooperative_members_keep_what_they_need_not_give_up(confluent: Crew) -> None:
    first = confluent.hire(strategy="cooperative-sticky")
    confluent.wait_for_owners(first, partitions=PARTITIONS)
    second = confluent.hire(strategy="cooperative-sticky")
    confluent.wait_for_owners(first, second, partitions=PARTITIONS)
    assert [len(revoked) for revoked in first.revocations if revoked] == [PARTITIONS // 2]
    confluent.produce(40, PARTITIONS)
    confluent.wait_for_all_processed()


def test_members_are_restarted_one_by_one_under_load(confluent: Crew) -> None:
    workers = [confluent.hire(strategy="cooperative-sticky") for _ in range(PARTITIONS)]
    confluent.wait_for_owners(*workers, partitions=PARTITIONS)
    for worker in workers:
        confluent.produce(20, PARTITIONS)
        worker.stop()
        confluent.hire(strategy="cooperative-sticky")
    confluent.wait_for_owners(*confluent.workers[PARTITIONS:], partitions=PARTITIONS)
    confluent.wait_for_all_processed()


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
