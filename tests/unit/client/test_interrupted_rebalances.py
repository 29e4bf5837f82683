"""Ctrl-C at every moment at which partitions come and go: the consumer goes by what librdkafka has assigned then."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.unit.client.interrupting import Interruption
from tests.unit.client.scripted import Broker, RawConsumer, install

from penstock.client.consuming.consumer import Consumer
from penstock.client.message import Message
from penstock.client.retry.policy import Retry

TOPIC, GROUP = "orders", "billing"
RETRY = f"{TOPIC}.{GROUP}.retry"
HERE, THERE, ELSEWHERE = (TOPIC, 0), (TOPIC, 1), (TOPIC, 2)
_MOMENTS_MAX = 5000
_ROUNDS = 25

Spot = tuple[str, int, int]
ORDERED: dict[str, Any] = {"retry": Retry(backoff="1s", ordered_by_key=True)}
EACH: list[dict[str, Any]] = [
    {"delivery": "at-most-once"},
    {"delivery": "at-least-once"},
    {"delivery": "at-least-once", "start": "latest"},
    ORDERED,
]
DELIVERY = pytest.mark.parametrize("options", EACH)


class Member:
    """It goes on after Ctrl-C."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, moment: int, options: dict[str, Any]) -> None:
        self.broker = Broker()
        self.broker.make(TOPIC, 3)
        install(self.broker, monkeypatch.setattr)
        self.consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), commit_every=1000, **options)
        self.interruption = Interruption(moment, lambda: self.raw.rebalancing)
        self.seen: list[Spot] = []
        self.another_begins_at = -1

    @property
    def raw(self) -> RawConsumer:
        assert self.broker.consumer is not None
        return self.broker.consumer

    def send(self, count: int) -> None:
        for number in range(count):
            for place in (HERE, THERE):
                self.broker.append(place, b"%d" % number, b"k", [])

    def queue(self, kind: str, *places: tuple[str, int]) -> None:
        partners = [(RETRY, index) for _, index in places if (RETRY, index) in self.broker.logs]
        self.raw.queue.append((kind, [*places, *partners]))

    def committed(self, place: tuple[str, int]) -> int:
        return self.broker.committed.get(place, (0, ""))[0]

    def ask(self, rounds: int = _ROUNDS) -> list[Spot]:
        before = len(self.seen)
        for _ in range(rounds):
            with suppress(KeyboardInterrupt), self.interruption.armed():
                self._note(self.consumer.receive(0.1))
        return self.seen[before:]

    def _note(self, message: Message | None) -> None:
        if message is not None:
            self.seen.append((message.topic, message.partition, message.offset))

    def loop_until(self, last: Spot) -> None:
        messages = iter(self.consumer)
        while last not in self.seen:
            self._note(next(messages))


def each_moment(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], told: Callable[[Member], None]
) -> Iterator[Member]:
    for moment in range(_MOMENTS_MAX):
        member = Member(monkeypatch, moment, options)
        told(member)
        yield member
        if not member.interruption.came:
            return
    pytest.fail("it has no end")


@DELIVERY
def test_an_assignment_that_was_interrupted_is_made_good(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(member: Member) -> None:
        member.queue("assign", HERE, THERE, ELSEWHERE)
        member.ask(3)
        member.send(3)
        member.queue("revoke", ELSEWHERE)  # what comes with a rebalance is held against what is ours
        member.ask()
        member.consumer.close()

    for member in each_moment(monkeypatch, options, told):
        wanted = [(*place, number) for place in (HERE, THERE) for number in range(3)]
        assert sorted(member.seen) == wanted, f"moment {member.interruption.moment}"
        assert member.committed(HERE) == member.committed(THERE) == 3


def test_keys_that_wait_do_so_after_an_assignment_that_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def told(member: Member) -> None:
        member.send(2)
        failed = [("penstock-origin", b"orders/0/0"), ("penstock-failures", b"1")]
        member.broker.append((RETRY, 0), b"0", b"k", failed)
        member.broker.commit(HERE, 1, "")
        member.queue("assign", HERE)
        member.ask()

    for member in each_moment(monkeypatch, ORDERED, told):
        assert member.seen == [(RETRY, 0, 0), (RETRY, 0, 1)], f"moment {member.interruption.moment}"


@DELIVERY
@pytest.mark.parametrize("in_a_loop", [True, False])
@pytest.mark.parametrize("how", ["revoke", "lost"])
def test_nothing_is_handed_out_or_committed_of_what_was_taken_away(
    how: str, in_a_loop: bool, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(member: Member) -> None:
        member.queue("assign", HERE, THERE)
        member.ask(3)
        member.send(3)
        first = member.ask(1)
        member.queue(how, HERE)
        member.broker.clock.now += 2  # it attends to the group, with messages in hand
        member.ask(1)
        member.another_begins_at = member.committed(HERE)
        member.broker.commit(HERE, 50, "")
        if in_a_loop:
            member.loop_until((*THERE, 2))
        member.ask()
        member.consumer.close()
        assert first

    for member in each_moment(monkeypatch, options, told):
        moment = f"moment {member.interruption.moment}"
        ours = [number for *place, number in member.seen if (*place,) == HERE]
        assert ours == [0], moment
        if options.get("delivery") != "at-most-once":  # there, what could not be given back is lost
            assert member.another_begins_at <= 1, moment
        assert member.committed(HERE) == 50, moment
        assert [number for *place, number in member.seen if (*place,) == THERE] == [0, 1, 2], moment
