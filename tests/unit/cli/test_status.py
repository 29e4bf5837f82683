"""When `penstock status --wait` returns."""

from typing import Any

import pytest

from penstock.cli import status
from penstock.cli.command import Session
from penstock.client.admin.cluster_info import BrokerInfo, BrokerState, ClusterInfo, Replicas
from penstock.client.topic_partition import TopicPartition

SESSION = Session("scripted", json=True, debug=False)
WHOLE = Replicas(1, (1, 2), (1, 2))


def seen(replicas: Replicas, state: BrokerState = BrokerState.IN_SERVICE, wanted: int = 2) -> ClusterInfo:
    brokers = {
        number: BrokerInfo(number, "127.0.0.1", 9092, None, None, broker, number == 1, 1, 1, 0, 0)
        for number, broker in enumerate((BrokerState.IN_SERVICE, state, BrokerState.IN_SERVICE), 1)
    }
    return ClusterInfo(
        "c", brokers, {TopicPartition("orders", 0): replicas}, wanted_replicas={"orders": wanted}
    )


class Admin:
    def __init__(self, *looks: ClusterInfo) -> None:
        self.looks = list(looks)

    def look(self) -> ClusterInfo:
        return self.looks.pop(0)


@pytest.mark.parametrize(
    "before",
    [
        seen(Replicas(1, (1, 2), (1,))),
        seen(Replicas(-1, (1, 2), (1, 2))),
        seen(Replicas(1, (1, 2, 3), (1, 2), adding=(3,))),
        seen(Replicas(1, (1, 2, 3), (1, 2, 3), removing=(3,))),
        seen(WHOLE, wanted=3),
        seen(WHOLE, BrokerState.SILENT),
    ],
    ids=["a replica out of sync", "no leader", "one that comes", "one that goes", "too few", "no answer"],
)
@pytest.mark.parametrize("watch", [False, True])
def test_it_waits_until_nothing_is_missing_and_nothing_moves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], before: ClusterInfo, watch: bool
) -> None:
    monkeypatch.setattr(status, "_LOOK_SECONDS", 0.0)
    admin: Any = Admin(before, before, seen(WHOLE))
    status._look_on(SESSION, admin, watch=watch, wait=True)
    assert admin.looks == []
    assert len(capsys.readouterr().out.splitlines()) == (3 if watch else 1)


def test_without_waiting_it_tells_what_is(capsys: pytest.CaptureFixture[str]) -> None:
    admin: Any = Admin(seen(Replicas(1, (1, 2), (1,))))
    status._look_on(SESSION, admin, watch=False, wait=False)
    assert '"under_replicated": 1' in capsys.readouterr().out
