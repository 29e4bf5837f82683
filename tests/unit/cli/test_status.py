"""When `penstock status --wait` returns."""

from typing import Any

import pytest

from penstock.cli import status
from penstock.cli.command import Session
from penstock.client.cluster_info import ClusterInfo, Place, Replicas

SESSION = Session("scripted", json=True, debug=False)
WHOLE = Replicas(1, (1, 2), (1, 2))


def seen(replicas: Replicas) -> ClusterInfo:
    return ClusterInfo("c", {}, {Place("orders", 0): replicas})


class Admin:
    def __init__(self, *looks: Replicas) -> None:
        self.looks = [seen(one) for one in looks]

    def look(self) -> ClusterInfo:
        return self.looks.pop(0)


@pytest.mark.parametrize(
    "before",
    [
        Replicas(1, (1, 2), (1,)),
        Replicas(-1, (1, 2), (1, 2)),
        Replicas(1, (1, 2, 3), (1, 2), adding=(3,)),
        Replicas(1, (1, 2, 3), (1, 2, 3), removing=(3,)),
    ],
    ids=["a replica out of sync", "no leader", "one that comes", "one that goes"],
)
@pytest.mark.parametrize("watch", [False, True])
def test_it_waits_until_nothing_is_missing_and_nothing_moves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], before: Replicas, watch: bool
) -> None:
    monkeypatch.setattr(status, "_LOOK_SECONDS", 0.0)
    admin: Any = Admin(before, before, WHOLE)
    status._look_on(SESSION, admin, watch=watch, wait=True)
    assert admin.looks == []
    assert len(capsys.readouterr().out.splitlines()) == (3 if watch else 1)


def test_without_waiting_it_tells_what_is(capsys: pytest.CaptureFixture[str]) -> None:
    admin: Any = Admin(Replicas(1, (1, 2), (1,)))
    status._look_on(SESSION, admin, watch=False, wait=False)
    assert '"under_replicated": 1' in capsys.readouterr().out
