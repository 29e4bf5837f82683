"""Looking changes nothing: no command that only looks makes a topic, of ours or of the broker's."""

from collections.abc import Iterator

import pytest
from tests.integration.commands import penstock

from penstock import Admin
from penstock.testing import BrokerProcess, broker


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    """Nobody has asked for a group yet."""
    with broker() as process:
        Admin(process.bootstrap).create("orders")
        Admin(process.bootstrap).create("orders.billing.dlq")
        yield process


@pytest.mark.parametrize(
    "command",
    [
        "why orders",
        "why absent",
        "status",
        "verify",
        "broker-admin list",
        "topic list",
        "topic describe orders",
        "topic describe absent",
        "group list",
        "group describe absent",
        "group delete absent",
        "group reset absent --topic orders --to-latest --dry-run",
        "dlq list",
        "dlq show orders --group billing",
        "dlq show absent --group absent",
        "consume absent --from-beginning --max 1",
    ],
)
def test_looking_makes_no_topic(running: BrokerProcess, command: str) -> None:
    done = penstock(*command.split(), bootstrap=running.bootstrap)
    assert (done.code != 0) == ("absent" in command and "--dry-run" not in command), done.err
    assert [topic.name for topic in Admin(running.bootstrap).topics()] == ["orders", "orders.billing.dlq"]
