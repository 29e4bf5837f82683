"""Scenes of a producer: Ctrl-C at every moment, callbacks that raise, event loops that are gone, what it tells."""

import asyncio
import signal
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.unit.client.interrupting import Interruption
from tests.unit.client.scripted_producer import RawProducer, install

from penstock.client.delivery import Delivery
from penstock.client.encryption import Encryption, StaticKeys
from penstock.client.errors import ClientError
from penstock.client.producer import Producer
from penstock.client.undisturbed import Undisturbed

_MOMENTS_MAX = 3000


def opened(
    monkeypatch: pytest.MonkeyPatch, *, thread: bool = False, **config: Any
) -> tuple[Producer, RawProducer]:
    made = install(monkeypatch.setattr, Random(1), thread=thread)
    producer = Producer("scripted", config=config)
    return producer, made[-1]


def flush(producer: Producer, _: list[Delivery]) -> None:
    producer.flush()


def ask(_: Producer, deliveries: list[Delivery]) -> None:
    for delivery in deliveries:
        delivery.exception()


def close(producer: Producer, _: list[Delivery]) -> None:
    producer.close()


def sweep(producer: Producer, deliveries: list[Delivery]) -> None:
    while not all(delivery.done() for delivery in deliveries):
        producer._pump.sweep()


@pytest.mark.parametrize("step", [flush, ask, close, sweep])
def test_ctrl_c_loses_no_report_and_no_callback(
    step: Callable[[Producer, list[Delivery]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for moment in range(_MOMENTS_MAX):
        producer, raw = opened(monkeypatch)
        called: list[Delivery] = []
        deliveries = [producer.send("t", b"fine") for _ in range(4)]
        for delivery in deliveries:
            delivery.add_done_callback(called.append)
        interruption = Interruption(moment)
        try:
            with interruption.armed():
                step(producer, deliveries)
        except KeyboardInterrupt:
            pass
        producer.close()
        assert not len(raw), f"moment {moment}"
        assert [delivery.exception(0) for delivery in deliveries] == [None] * 4, f"moment {moment}"
        assert called == deliveries, f"moment {moment}"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if not interruption.came:
            return
    pytest.fail("it has no end")


def test_ctrl_c_in_flush_leaves_the_failures_to_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for moment in range(_MOMENTS_MAX):
        producer, _ = opened(monkeypatch)
        producer.send("t", b"refused")
        interruption = Interruption(moment)
        with pytest.raises((ClientError, KeyboardInterrupt)) as first, interruption.armed():
            producer.flush()
        if first.type is KeyboardInterrupt:
            with pytest.raises(ClientError, match="too large"):
                producer.close()
        if not interruption.came:
            return
    pytest.fail("it has no end")


def test_failures_beyond_those_kept_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, _ = opened(monkeypatch)
    deliveries = [producer.send("t", b"refused") for _ in range(20)]
    for delivery in deliveries[:17]:
        assert delivery.exception() is not None
    with pytest.raises(ClientError, match=r"3 sends failed, the first: .*too large"):
        producer.flush()
    producer.flush()
    assert deliveries[-1].exception() is not None  # told already: it does not count for later ones
    producer.send("t", b"refused")
    with pytest.raises(ClientError, match="too large"):
        producer.close()


def test_a_wait_whose_loop_is_closed_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, raw = opened(monkeypatch, thread=True)
    raw.frozen = True

    async def give_up() -> None:
        delivery = producer.send("t", b"one")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(until(delivery), 0.01)

    async def until(delivery: Delivery) -> None:
        await delivery

    asyncio.run(give_up())
    loop = asyncio.new_event_loop()  # one that does not even cancel its tasks
    task = loop.create_task(until(producer.send("t", b"two")))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    raw.frozen = False

    async def wait() -> int | None:
        return (await asyncio.wait_for(until_sent(producer.send("t", b"three")), 10)).offset

    async def until_sent(delivery: Delivery) -> Any:
        return await delivery

    assert asyncio.run(wait()) == 2
    producer.close()
    assert not len(raw)


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_callback_of_the_settings_that_raises_ends_nothing(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def statistics(_: str) -> None:
        if threading.current_thread() is not threading.main_thread() or error is ValueError:
            raise error("a slip")

    producer, raw = opened(monkeypatch, thread=True, stats_cb=statistics)

    async def wait() -> None:
        for _ in range(30):
            await asyncio.wait_for(until(producer.send("t", b"fine")), 10)

    async def until(delivery: Delivery) -> None:
        await delivery

    asyncio.run(wait())
    deliveries = [producer.send("t", b"fine") for _ in range(30)]
    producer.close()
    assert not len(raw)
    assert all(delivery.done() for delivery in deliveries)


def test_a_report_that_was_lost_after_all_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, raw = opened(monkeypatch)
    delivery = producer.send("t", b"fine")
    batch = producer.send_many("t", [b"fine", b"fine"])
    raw._sent.clear()
    with pytest.raises(ClientError, match="its report was lost"):
        delivery.result()
    with pytest.raises(ClientError, match=r"2 of 2 messages failed: .*its report was lost"):
        batch.result()


def test_a_signal_waits_for_the_end_of_what_is_undisturbed() -> None:
    done = []

    def call() -> None:
        with Undisturbed(), Undisturbed():
            signal.raise_signal(signal.SIGINT)
            done.append(1)
        done.append(2)

    with pytest.raises(KeyboardInterrupt):
        call()
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_of_two_signals_in_what_is_undisturbed_both_are_heard(first: signal.Signals) -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))

    def call() -> None:
        with Undisturbed():
            signal.raise_signal(first)
            signal.raise_signal(signal.SIGTERM if first == signal.SIGINT else signal.SIGINT)

    try:
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM]


def test_an_event_loop_hears_of_a_signal_once() -> None:
    came: list[int] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, came.append, 1)
        with Undisturbed():
            signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            while not came:  # noqa: ASYNC110 - the signal makes it true
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        loop.remove_signal_handler(signal.SIGTERM)

    asyncio.run(story())
    assert came == [1]


def test_a_handler_that_is_set_meanwhile_stands() -> None:
    came: list[int] = []
    try:
        with Undisturbed():
            signal.signal(signal.SIGINT, lambda number, _: came.append(number))
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert came == [signal.SIGINT]


def test_headers_passed_on_leave_a_message_its_own_id(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, raw = opened(monkeypatch)
    came_with = [("penstock-id", b"another"), ("trace", b"7"), ("trace", b"8")]
    delivery = producer.send("t", b"fine", headers=came_with)
    assert raw.headers[0] == [("penstock-id", delivery.id), *came_with[1:]]
    producer.send_many("t", [b"fine"], headers=came_with)
    assert raw.headers[1][1:] == came_with[1:]
    producer.send("t", b"fine", headers={"penstock-id": "another"})
    assert len(raw.headers[2]) == 1
    producer.close()


def test_headers_passed_on_leave_a_message_the_key_it_is_sealed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    made = install(monkeypatch.setattr, Random(1))
    producer = Producer("scripted", encryption=Encryption(StaticKeys({"new": bytes(32)})))
    producer.send("t", b"fine", headers=[("penstock-key-id", b"old")])
    assert [value for name, value in made[-1].headers[0] if name == "penstock-key-id"] == ["new"]
    producer.close()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            KafkaException(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "lost", True)),
            "failed for good: lost",
        ),
        (KafkaException(KafkaError(KafkaError._TRANSPORT)), "a callback of the producer's config failed"),
        (KafkaException(), "a callback of the producer's config failed"),
        (ValueError("no"), "a callback of the producer's config failed"),
    ],
)
def test_a_poll_that_raises_says_whose_failure_it_was(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    producer, raw = opened(monkeypatch)
    honest, failing = raw.poll, [error]
    waits: list[float] = []

    def poll(timeout: float) -> int:
        waits.append(timeout)
        if failing:
            raise failing.pop()
        return honest(timeout)

    monkeypatch.setattr(raw, "poll", poll)
    producer.send("t", b"fine")
    producer.close()
    assert said in caplog.text
    assert max(waits) < 0.2  # librdkafka's binding makes several calls of a longer one
