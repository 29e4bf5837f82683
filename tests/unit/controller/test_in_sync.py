"""Which requests of leaders the controller carries out."""

from types import SimpleNamespace
from typing import Any

from penstock.controller.election import Rules
from penstock.controller.in_sync import WantedIsr, decide
from penstock.coordination.nodes import PartitionState
from penstock.coordination.registration import Life
from penstock.core.error_codes import ErrorCode

TOPIC = bytes(16)
STATE = PartitionState((1, 2), (1, 2), leader=1, leader_epoch=3, partition_epoch=5)


def asked(*, settled: bool) -> PartitionState | ErrorCode:
    """The leader wants to go on alone."""
    image: Any = SimpleNamespace(
        brokers={broker: SimpleNamespace(epoch=broker, stopping=False) for broker in (1, 2)},
        lives={1: Life("a", settled), 2: Life("b", settled=True)},
        topics_by_id={TOPIC: SimpleNamespace(partitions=[STATE])},
    )
    return decide(image, 1, WantedIsr(TOPIC, 0, 3, 5, [(1, 1)]), Rules())


def test_a_leader_gives_up_who_lags() -> None:
    after = asked(settled=True)
    assert isinstance(after, PartitionState)
    assert after.isr == (1,)


def test_a_leader_that_may_have_lost_its_end_gives_up_nobody() -> None:
    """It asked before its log failed, and asks again under its new registration."""
    assert asked(settled=False) is ErrorCode.FENCED_LEADER_EPOCH
