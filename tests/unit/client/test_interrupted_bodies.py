"""Ctrl-C where a body has failed: no commit passes its message before that lies in its next place.

It comes while the error says what was wrong, and at every moment behind the body.
"""

from contextlib import nullcontext, suppress
from typing import Any, Literal

import pytest
from tests.unit.client.interrupting import Interruption, handled
from tests.unit.client.scripted import Broker, install
from tests.unit.client.scripted_sdk import Delivery

from penstock.client.consuming.consumer import Consumer
from penstock.client.errors import ClientError
from penstock.client.message import Message
from penstock.client.retry.policy import Retry

SOURCE = ("orders", 0)
_MOMENTS_MAX = 4000
Semantics = Literal["at-least-once", "at-most-once"]


class InterruptedOnceError(Exception):
    told = False

    def __str__(self) -> str:
        if self.told:
            return "no"
        self.told = True
        raise KeyboardInterrupt


def opened(
    monkeypatch: pytest.MonkeyPatch,
    messages: int,
    retry: Retry | None,
    delivery: Semantics = "at-least-once",
    every: float | None = None,
) -> tuple[Broker, Consumer]:
    broker = Broker()
    broker.make("orders", 1)
    install(broker, monkeypatch.setattr)
    for number in range(messages):
        broker.append(SOURCE, b"%d" % number, b"k", [])
    if every is None:
        every = 0 if delivery == "at-least-once" else 1000
    consumer = Consumer(
        "scripted", "orders", group="g", stop_on=(), delivery=delivery, commit_every=every, retry=retry
    )
    raw = broker.consumer
    assert raw is not None
    raw.queue.append(("assign", [place for place in broker.logs if place[0] in raw.topics]))
    return broker, consumer


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("ends", ["goes on", "leaves", "closes"])
def test_a_failed_message_is_somewhere(ordered: bool, ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, consumer = opened(monkeypatch, 1, Retry(3, "20s", ordered_by_key=ordered))

    def body(_: Message) -> None:
        raise InterruptedOnceError

    if ends == "leaves":
        with consumer, suppress(KeyboardInterrupt):
            consumer.run(body)
    else:
        with suppress(KeyboardInterrupt):
            consumer.run(body)
        if ends == "goes on":
            consumer.receive(0.1)
        consumer.close()
    kept = [place for place, log in broker.logs.items() if place[0] != "orders" and log]
    committed = broker.committed.get(SOURCE, (0, ""))[0]
    assert kept or committed == 0, "committed, worked on by nobody, and in no retry topic"


@pytest.mark.parametrize("which", [1, 2, 3])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("attempts", [3, 5])
@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
def test_at_no_moment_a_failed_message_or_the_order_of_its_key_is_lost(
    which: int, ordered: bool, attempts: int, delivery: Semantics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application goes on afterwards."""
    for moment in range(_MOMENTS_MAX):
        retry = Retry(attempts, "20s", ordered_by_key=ordered)
        broker, consumer = opened(monkeypatch, 3, retry, delivery)
        ended: list[bytes] = []
        failed = 0
        interruption = Interruption(moment)
        for _ in range(80):
            broker.clock.now += 25
            message = consumer.receive(0.3)
            if message is None:
                continue
            if message.value != b"0" or failed >= 3:
                handled(consumer, message, None, nullcontext)
                ended.append(message.value)
                continue
            failed += 1
            armed = interruption.armed if failed == which else nullcontext
            with suppress(KeyboardInterrupt):
                handled(consumer, message, ValueError("no"), armed)
        consumer.close()
        given_up = {
            log.data for place, logs in broker.logs.items() if place[0].endswith("dlq") for log in logs
        }
        seen = f"moment {moment}: {ended}, {given_up}"
        assert set(ended) | given_up == {b"0", b"1", b"2"}, seen
        if ordered:
            assert [value for value in dict.fromkeys(ended) if value != b"0"] == [b"1", b"2"], seen
            assert b"0" not in ended or ended[0] == b"0", seen
        if delivery == "at-most-once":
            assert len(ended) + len(given_up) == 3, seen
        if not interruption.came:
            return
    pytest.fail("it has no end")


@pytest.mark.parametrize("retried", [False, True])
def test_at_no_moment_of_run_a_message_is_committed_unseen(
    retried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` is interrupted inside the `with` block, which is left in order; another consumer goes on."""
    for moment in range(_MOMENTS_MAX):
        broker, consumer = opened(monkeypatch, 5, Retry(3, "20s") if retried else None)
        done: list[bytes] = []
        interruption = Interruption(moment)

        def body(message: Message, done: list[bytes] = done, consumer: Consumer = consumer) -> None:
            done.append(message.value)
            if len(done) == 4:
                consumer.stop()

        with consumer, suppress(KeyboardInterrupt), interruption.armed():
            consumer.run(body)
        assert broker.committed.get(SOURCE, (0, ""))[0] <= len(done), f"moment {moment}"
        if not interruption.came:
            return
    pytest.fail("it has no end")


@pytest.mark.parametrize("ordered", [False, True])
def test_a_message_that_was_passed_on_is_not_taken_for_one_in_hand(
    ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` is interrupted while the next of its key waits for the answer, and called again."""
    broker, consumer = opened(monkeypatch, 2, Retry(2, "5s", ordered_by_key=ordered), every=1000)
    answers = Delivery.exception
    interruptions = [KeyboardInterrupt()]

    def waits(delivery: Delivery) -> ClientError | None:
        if interruptions:
            raise interruptions.pop()
        return answers(delivery)

    def body(_: Message) -> None:
        raise ValueError

    monkeypatch.setattr(Delivery, "exception", waits)
    stop_after(consumer, broker, 60, monkeypatch)
    with suppress(KeyboardInterrupt):
        consumer.run(body)
    consumer.run(body)
    for name in ("orders.g.retry", "orders.g.dlq"):
        lying = [stored.data for place, log in broker.logs.items() if place[0] == name for stored in log]
        assert sorted(lying) == [b"0", b"1"], name


def test_at_no_moment_between_bodies_of_run_a_key_overtakes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first has failed, and ends at its second try; the next of its key comes meanwhile. `run` is called again."""
    for moment in range(_MOMENTS_MAX):
        retry = Retry(3, "5s", ordered_by_key=True)
        broker, consumer = opened(monkeypatch, 1, retry, every=1000)
        ended: list[bytes] = []
        tries: list[bytes] = []

        def body(
            message: Message, ended: list[bytes] = ended, tries: list[bytes] = tries, broker: Broker = broker
        ) -> None:
            tries.append(message.value)
            if tries == [b"0"]:
                raise ValueError
            if not ended:
                broker.append(SOURCE, b"1", b"k", [])
            ended.append(message.value)

        interruption = Interruption(moment, may_come=lambda ended=ended: ended == [b"0"])
        stop_after(consumer, broker, 60, monkeypatch)
        with suppress(KeyboardInterrupt), interruption.armed():
            consumer.run(body)
        if not interruption.came:
            return
        consumer.run(body)
        assert b"0" not in ended[ended.index(b"1") :], f"moment {moment}: {ended}"
    pytest.fail("it has no end")


def stop_after(consumer: Consumer, broker: Broker, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    refill = consumer._reader.refill
    end = broker.clock.now + seconds

    def refill_or_stop(*args: Any, **options: Any) -> bool:
        if broker.clock.now > end:
            consumer.stop()
        return refill(*args, **options)

    monkeypatch.setattr(consumer._reader, "refill", refill_or_stop)
