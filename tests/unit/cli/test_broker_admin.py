"""When `penstock broker-admin drain` says that a broker is empty."""

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.cli import broker_admin
from penstock.cli.command import Session
from penstock.cli.errors import CommandError
from penstock.client.cluster_info import BrokerInfo, BrokerState, ClusterInfo, Place

RETIRED = Place("orders", 7)
SESSION = Session("scripted", json=True, debug=False)


def seen(state: BrokerState, held: Mapping[Place, int] | None = None) -> ClusterInfo:
    """A cluster whose metadata shows nothing on broker 3; what it says itself is `held`."""
    one = BrokerInfo(3, "h", 1, None, None, state, False, len(held or ()), 0, None, None)
    return ClusterInfo("c", {3: one}, {}, {3: held} if held else {})


class Admin:
    def __init__(self, *looks: ClusterInfo) -> None:
        self.looks = list(looks)

    def look(self) -> ClusterInfo:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def drain(monkeypatch: pytest.MonkeyPatch, admin: Any) -> None:
    monkeypatch.setattr(broker_admin, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(broker_admin, "_STUCK_SECONDS", 0.02)
    broker_admin._until_empty(SESSION, admin, 3)


def test_a_broker_that_does_not_answer_is_not_called_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata hides retired partitions: only the broker knows of those."""
    holding, empty = seen(BrokerState.DRAINING, {RETIRED: 10}), seen(BrokerState.DRAINED)
    admin = Admin(holding, seen(BrokerState.SILENT), holding, empty)
    drain(monkeypatch, admin)
    assert admin.looks == [empty]


def test_a_broker_that_never_answers_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandError, match="broker 3 does not answer"):
        drain(monkeypatch, Admin(seen(BrokerState.SILENT)))


def test_a_broker_that_died_is_gone_when_nothing_is_counted_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    drain(monkeypatch, Admin(seen(BrokerState.DEAD)))
