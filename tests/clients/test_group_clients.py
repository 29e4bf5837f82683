"""Groups of the Java client, KafkaJS and franz-go: the stories of the Python clients, told again (`make clients`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.groups import stories
from tests.integration.groups.crew import Crew, crew
from tests.integration.groups.stories import COOPERATIVE, PARTITIONS

from penstock.testing import BrokerProcess, broker

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
pytestmark = pytest.mark.clients
TEN = 10


@dataclass(frozen=True)
class Client:
    name: str
    program: tuple[str, ...]
    # KafkaJS rebalances eagerly and has no static members.
    cooperative: bool = True
    static: bool = True

    def __str__(self) -> str:
        return self.name


# Ten of them run on a small machine: little memory, and no time spent on compiling well.
JVM = ("-Xmx64M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
CLIENTS = (
    Client("java", ("java", *JVM, "-cp", f"{HERE}/java/target/lib/*", "penstock.clients.Member")),
    Client("kafkajs", ("node", f"{HERE}/js/member.js"), cooperative=False, static=False),
    Client("franz-go", (f"{HERE}/go/target/member",)),
)
SHOWN = [pytest.param(client, id=client.name, marks=pytest.mark.ecosystem(client.name)) for client in CLIENTS]
STATIC = [client for client in CLIENTS if client.static]
COOPERATING = [client for client in CLIENTS if client.cooperative]
ROLLING = [
    *((client, "range", False) for client in CLIENTS),
    *((client, COOPERATIVE, False) for client in COOPERATING),
    *((client, "range", True) for client in STATIC),
]


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker(stories.SETTINGS) as process:
        yield process


@pytest.fixture
def members(request: pytest.FixtureRequest, running: BrokerProcess) -> Iterator[Crew]:
    client: Client = request.param
    name = f"{client}-{next(stories.names)}"
    with crew(client.name, running.bootstrap, name, PARTITIONS, client.program) as team:
        yield team


@pytest.mark.parametrize("members", SHOWN, indirect=True)
def test_members_share_the_work_and_take_over_from_one_that_leaves(members: Crew) -> None:
    stories.share_the_work_and_leave(members)


@pytest.mark.parametrize("members", SHOWN, indirect=True)
def test_a_crashed_members_work_goes_on_where_it_committed(members: Crew) -> None:
    stories.crash(members)


@pytest.mark.parametrize("members", STATIC, indirect=True, ids=str)
def test_a_static_member_restarts_without_a_rebalance(members: Crew) -> None:
    stories.restart_a_static_member(members)


@pytest.mark.parametrize("members", COOPERATING, indirect=True, ids=str)
def test_cooperative_members_keep_what_they_need_not_give_up(members: Crew) -> None:
    stories.keep_what_need_not_be_given_up(members)


@pytest.mark.parametrize(("client", "strategy", "static"), ROLLING, ids=str)
def test_ten_members_are_restarted_one_by_one_under_load(
    client: Client, strategy: str, static: bool, running: BrokerProcess
) -> None:
    name = f"{client}-{next(stories.names)}"
    with crew(client.name, running.bootstrap, name, TEN, client.program) as ten:
        stories.restart_one_by_one_under_load(ten, TEN, strategy, static=static)
