"""When `penstock broker-admin drain` says that a broker is empty."""

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.cli import broker_admin
from penstock.cli.command import Session
from penstock.cli.errors import CommandError
from penstock.client.admin.cluster_info import BrokerInfo, BrokerState, ClusterInfo
from penstock.client.admin.cluster_look import _Own, _state
from penstock.client.topic_partition import TopicPartition
from penstock.wire.kafka.generated.describe_cluster import DescribeClusterBroker

RETIRED = TopicPartition("orders", 7)
SESSION = Session("scripted", json=True, debug=False)


def seen(state: BrokerState, held: Mapping[TopicPartition, int] | None = None) -> ClusterInfo:
    """A cluster whose metadata shows nothing on broker 3; what it says itself is `held`."""
    size = None if held is None else sum(held.values())
    broker = BrokerInfo(3, "h", 1, None, None, state, False, len(held or ()), 0, size, None)
    return ClusterInfo("c", {3: broker}, {}, {3: held} if held else {})


class Admin:
    def __init__(self, *looks: ClusterInfo) -> None:
        self.looks = list(looks)

    def look(self) -> ClusterInfo:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def drain(monkeypatch: pytest.MonkeyPatch, admin: Any, *, was_live: bool = True) -> None:
    monkeypatch.setattr(broker_admin, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(broker_admin, "_STUCK_SECONDS", 0.02)
    broker_admin._until_empty(SESSION, admin, 3, was_live=was_live)


def test_a_broker_that_does_not_answer_is_not_called_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata hides retired partitions: only the broker knows of those."""
    holding, empty = seen(BrokerState.DRAINING, {RETIRED: 10}), seen(BrokerState.DRAINED, {})
    admin = Admin(holding, seen(BrokerState.SILENT), holding, empty)
    drain(monkeypatch, admin)
    assert admin.looks == [empty]


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (seen(BrokerState.SILENT), "broker 3 does not answer"),
        (seen(BrokerState.DEAD), "broker 3 died"),
        (ClusterInfo("c", {}, {}), "broker 3 died"),
        (seen(BrokerState.DRAINING), "broker 3 cannot list its logs"),
    ],
)
def test_a_broker_that_does_not_say_what_it_holds_is_not_called_empty_at_last(
    monkeypatch: pytest.MonkeyPatch, last: ClusterInfo, said: str
) -> None:
    with pytest.raises(CommandError, match=said):
        drain(monkeypatch, Admin(seen(BrokerState.DRAINING, {RETIRED: 10}), last))


def test_a_broker_that_was_dead_is_gone_when_nothing_is_counted_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drain(monkeypatch, Admin(seen(BrokerState.DEAD)), was_live=False)
    drain(monkeypatch, Admin(ClusterInfo("c", {}, {})), was_live=False)


@pytest.mark.parametrize(("sizes", "state"), [({}, BrokerState.DRAINED), (None, BrokerState.DRAINING)])
def test_a_look_calls_a_broker_drained_only_if_it_listed_its_logs(
    sizes: dict[TopicPartition, int] | None, state: BrokerState
) -> None:
    assert _state(DescribeClusterBroker(), _Own(draining=True, sizes=sizes), 0) is state
