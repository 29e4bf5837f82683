"""A controller that asks for very many partitions at once: their leader serves others meanwhile."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core import turns as module
from penstock.core.session import Session
from penstock.frontends.kafka.handlers import retirement
from penstock.frontends.kafka.registry import Call
from penstock.server.cluster import ClusterMember
from penstock.wire.peers.retirement import Frozen, Question, RetirementRequest

TOPIC = b"t" * 16
EPOCHS = dict.fromkeys(range(20), 1)


class Retiring:
    def answer(self, topic_id: bytes, index: int, leader_epoch: int, question: Question) -> Frozen:
        return Frozen(index)


@pytest.fixture(autouse=True)
def _each_takes_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who freezes one makes a file, which may take as long as a turn."""
    monkeypatch.setattr(module, "TURN_SECONDS_MAX", 0.0)


async def turns_beside(work: Any) -> tuple[Any, int]:
    """What it came to, and how often others had their turn meanwhile."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return await task, turns


def test_a_leader_answers_for_many_partitions_in_turns() -> None:
    async def story() -> None:
        image = SimpleNamespace(brokers={2: SimpleNamespace(epoch=7)})
        services: Any = SimpleNamespace(image=image, retiring=Retiring())
        session = Session("LISTENER")
        session.broker, session.broker_epoch = 2, 7
        request = RetirementRequest(Question.FREEZE, TOPIC, [*EPOCHS.items()])
        response, turns = await turns_beside(retirement.handle(services, request, Call(0, None, session)))
        assert [answer for _, _, answer in response.partitions] == [Frozen(index) for index in EPOCHS]
        assert turns > len(EPOCHS) // 2

    asyncio.run(story())


def test_a_controller_that_leads_them_itself_does_so_too() -> None:
    async def story() -> None:
        member: Any = SimpleNamespace(_node=1, _loop=asyncio.get_running_loop(), retiring=Retiring())
        work = ClusterMember._ask_retiring(member, 1, TOPIC, EPOCHS, Question.FREEZE)
        told, turns = await turns_beside(work)
        assert told == {index: Frozen(index) for index in EPOCHS}
        assert turns > len(EPOCHS) // 2

    asyncio.run(story())
