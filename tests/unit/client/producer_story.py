"""A producer as an application may treat it: it sends, asks, waits in event loops that are closed, gives callbacks that
raise, and presses Ctrl-C at any moment. What must be true however it goes:

- the outcome of every message is known in the end, and it is the broker's;
- every callback is called once;
- a failure is told: to who asks for it, or by flush() or close().
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from tests.unit.client.interrupting import Interruption
from tests.unit.client.scripted_producer import RawProducer

from penstock.client.delivery import Delivery, DeliveryBatch, DeliveryTimeoutError
from penstock.client.errors import ClientError
from penstock.client.producer import BufferFullError, Producer

_STEPS = 60
_MOMENTS = 60
_MANY = 24


class Story:
    def __init__(self, seed: int, made: list[RawProducer]) -> None:
        self._random = Random(seed)
        self._slip = self._random.random() < 0.5
        self._producer = Producer("scripted", config={"stats_cb": self._statistics})
        self._raw = made[-1]
        self._sent: list[tuple[Delivery, bool]] = []  # and whether the broker refuses it
        self._batches: list[tuple[DeliveryBatch, int]] = []  # and how many are refused
        self._asked: set[int] = set()  # those that were answered, or may have been
        self._doubtful: set[int] = set()
        self._called: Counter[int] = Counter()
        self._given: Counter[int] = Counter()
        self._told = 0
        self._given_up = False
        self._hurried = False  # closing was interrupted: the log has what it would have raised
        self._interruption: Interruption | None = None
        self._left: list[
            Any
        ] = []  # coroutines whose loop is gone: Ctrl-C while they are collected would be swallowed

    def run(self) -> None:
        steps: list[Callable[[], object]] = [
            self._send,
            self._send,
            self._send_many,
            self._ask,
            self._give_callback,
            self._wait_in_a_loop,
            self._flush,
            self._sweep,
            self._give_callback,
            self._round_of_the_thread,
        ]
        if self._random.random() < 0.3:
            self._many_fail()
        try:
            for _ in range(self._random.randint(1, _STEPS)):
                self._interrupted(self._random.choice(steps))
            self._end()
            self._check()
        finally:
            for coroutine in self._left:
                coroutine.close()

    def _interrupted(self, step: Callable[[], object]) -> bool:
        """A step, and perhaps Ctrl-C somewhere in it; whether it came."""
        if self._random.random() < 0.5:
            step()
            return False
        self._interruption = Interruption(self._random.randrange(_MOMENTS))
        try:
            step()
        except KeyboardInterrupt:
            return True
        finally:
            self._interruption = None
        return False

    def _do(self, call: Callable[[], Any]) -> Any:
        """Into the SDK, where the interruption may come."""
        if self._interruption is None:
            return call()
        with self._interruption.armed():
            return call()

    def _statistics(self, _: str) -> None:
        if self._slip:
            raise ValueError("a slip in a callback of the settings")

    # What the application does

    def _send(self) -> None:
        refused = self._random.random() < 0.3
        before = self._raw.taken
        value = b"refused" if refused else b"fine"
        wait = self._random.random() < 0.7
        try:
            delivery = self._do(lambda: self._producer.send("t", value, wait_for_room=wait))
        except BufferFullError:
            return
        except KeyboardInterrupt:
            if self._raw.taken > before and refused:
                self._doubtful.add(-self._raw.taken)  # nobody has its delivery: flush() tells
            raise
        self._sent.append((delivery, refused))

    def _many_fail(self) -> None:
        """More than are kept to say why; all but the last few are asked about."""
        self._sent += [(self._producer.send("t", b"refused"), True) for _ in range(_MANY)]
        for delivery, _ in self._sent[:-2]:
            delivery.exception()
            self._asked.add(id(delivery))
        if self._random.random() < 0.5:
            self._flush()

    def _send_many(self) -> None:
        values = [b"refused" if self._random.random() < 0.2 else b"fine" for _ in range(8)]
        try:
            batch = self._do(lambda: self._producer.send_many("t", values))
        except KeyboardInterrupt:
            self._doubtful.add(-self._raw.taken)
            raise
        self._batches.append((batch, values.count(b"refused")))

    def _ask(self) -> None:
        found = [delivery for delivery, _ in self._sent] + [batch for batch, _ in self._batches]
        if found:
            self._ask_for(self._random.choice(found))

    def _ask_for(self, delivery: Delivery | DeliveryBatch) -> None:
        try:
            self._do(lambda: delivery.exception(self._random.choice([None, 0])))
        except DeliveryTimeoutError:
            return
        except KeyboardInterrupt:
            self._doubtful.add(id(delivery))
            raise
        self._asked.add(id(delivery))

    def _give_callback(self) -> None:
        if not self._sent:
            return
        delivery, _ = self._random.choice(self._sent)
        raises = self._random.random() < 0.3

        def callback(delivery: Delivery) -> None:
            assert delivery.done()
            self._called[id(delivery)] += 1
            if raises:
                raise ValueError("a slip in a callback")

        try:
            self._do(lambda: delivery.add_done_callback(callback))
        except KeyboardInterrupt:
            # It may have been taken; and another one's callback may have been running.
            self._doubtful.add(id(delivery))
            raise
        self._given[id(delivery)] += 1
        if delivery.done():
            self._doubtful.add(id(delivery))

    def _wait_in_a_loop(self) -> None:
        if not self._sent:
            return
        delivery, _ = self._random.choice(self._sent)

        async def wait() -> None:
            waiting = asyncio.ensure_future(_awaited(delivery))
            await asyncio.sleep(0)
            if self._random.random() < 0.5:
                self._round_of_the_thread()
                await asyncio.sleep(0)
            if not waiting.done():
                waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled() or waiting.exception() is None

        self._doubtful.add(id(delivery))
        loop = asyncio.new_event_loop()
        try:
            if self._random.random() < 0.3:  # left where it is: its loop is closed under it
                task = loop.create_task(_awaited(delivery))
                loop.run_until_complete(asyncio.sleep(0))
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                self._left.append(task.get_coro())
            else:
                loop.run_until_complete(wait())
        finally:
            loop.close()

    def _flush(self) -> None:
        self._hear(lambda: self._producer.flush(self._random.choice([None, 0, 1])))

    def _sweep(self) -> None:
        self._do(self._producer._pump.sweep)

    def _hear(self, call: Callable[[], None]) -> None:
        try:
            self._do(call)
        except DeliveryTimeoutError:
            pass
        except ClientError as error:
            words = str(error).split()
            self._told += int(words[0]) if words[1] == "sends" else 1

    def _round_of_the_thread(self) -> None:
        self._producer._pump.hurry(+1)
        try:
            self._producer._pump.collect_once()
        finally:
            self._producer._pump.hurry(-1)

    # How it ends

    def _end(self) -> None:
        if len(self._raw) and self._random.random() < 0.2:
            self._end_without_answers()
            return
        self._hurried = self._interrupted(lambda: self._hear(self._producer.close))
        self._producer._closed = False
        self._raw.closed = False
        self._hear(self._producer.close)

    def _end_without_answers(self) -> None:
        """Only Ctrl-C ends it then, and what is under way is given up."""
        self._raw.frozen = self._given_up = self._hurried = True
        self._interruption = Interruption(self._random.randrange(_MOMENTS))
        with suppress(KeyboardInterrupt):
            self._hear(self._producer.close)
            raise AssertionError("nothing answers, and closing has ended")
        self._interruption = None
        self._raw.frozen = False
        self._hear(self._producer.close)  # it may not have begun

    def _check(self) -> None:
        failed = set()
        assert not len(self._raw), "something was dropped"
        for delivery, refused in self._sent:
            assert delivery.done(), "a report was lost"
            error = delivery.exception_now()
            assert (error is not None) == refused or self._given_up, f"{error} of one that is {refused}"
            assert error is None or "lost" not in str(error), error
            if refused:
                failed.add(id(delivery))
        for batch, refusals in self._batches:
            assert batch.done(), "reports of a batch were lost"
            assert batch.failed == refusals or self._given_up, "the failures of a batch were miscounted"
            assert batch.exception_now() is None or "lost" not in str(batch.exception_now())
            if refusals:
                failed.add(id(batch))
        certain = len(failed - self._asked - self._doubtful)
        most = len(failed) + len([key for key in self._doubtful if key < 0])
        if not self._hurried:
            assert self._told >= certain, f"{certain} failures that nobody asked about, {self._told} told"
            assert self._told <= most, f"{self._told} failures told, there were {most}"
        for key, times in self._given.items():
            called = self._called[key]
            assert called >= times, f"{times} callbacks were given, {called} called"
            assert called <= times or key in self._doubtful, f"{times} callbacks given, {called} calls"


async def _awaited(delivery: Delivery) -> None:
    with suppress(ClientError):
        await delivery
