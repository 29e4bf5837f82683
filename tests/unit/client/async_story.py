"""A seeded story of an AsyncConsumer over a scripted broker, whose waits are cancelled at any await.

Waits are cancelled as `asyncio.timeout` does, and who asked goes on; whole sessions are, also while they begin and
leave, and also more than once. Its thread is played by the event loop: a call is made some turns after it was asked
for, so that everything may happen in between, and a seed tells the same story each time.

At-least-once: no commit passes a message whose body has not ended, and in the end every message was worked on.
At-most-once: none is handed out twice, and none is missed unless its partition was lost. Always: leaving comes to its
end, and every consumer that was made is closed.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from random import Random
from typing import Any, Literal, TypeVar

from tests.unit.client.consumer_checks import Violation
from tests.unit.client.raising import slip
from tests.unit.client.scripted import Broker, RawConsumer

from penstock.client.aio import AsyncConsumer
from penstock.client.consuming.unfinished import Where
from penstock.client.errors import ClientError
from penstock.client.message import Message
from penstock.client.retry.policy import Retry

TOPIC, GROUP = "orders", "billing"
PLACES: list[Where] = [(TOPIC, 0), (TOPIC, 1)]
_SESSIONS = 6
_STEPS = 40
_TURNS_MAX = 400  # in which whatever was ended must have come to its end
_TURNS_PER_CALL = 4
_WEARY_TURNS = 60  # who waits for ever gives up
_QUIET_ROUNDS = 6
_TROUBLE = (ClientError, ValueError)

T = TypeVar("T")
Origin = tuple[str, int, int]


class Turns:
    """The consumer's thread, played by the event loop: one call after the other, each some turns late."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self.violations: list[Violation] = []
        self.working = False

    def submit(self, work: Callable[[], Any]) -> "Future[Any]":
        future: Future[Any] = Future()
        self._calls.append((future, work))
        if len(self._calls) == 1:
            self._later()
        return future

    def shutdown(self, *, wait: bool) -> None:
        assert not wait, "the event loop would stand still"

    @property
    def busy(self) -> bool:
        return bool(self._calls)

    def _later(self) -> None:
        countdown(self._random.randrange(_TURNS_PER_CALL), self._work)

    def _work(self) -> None:
        future, work = self._calls[0]
        self.working = True
        try:
            future.set_result(work())
        except Exception as error:
            if isinstance(error, Violation):
                self.violations.append(error)  # whoever waits may be cancelled, and not hear of it
            future.set_exception(error)
        finally:
            self.working = False
        self._calls.popleft()
        if self._calls:
            self._later()


def countdown(turns: int, work: Callable[[], object]) -> Callable[[], None]:
    """Call `work` after so many turns of the event loop; gives what calls it off."""
    wanted = [True]
    loop = asyncio.get_running_loop()

    def turn(left: int) -> None:
        if wanted:
            if left:
                loop.call_soon(turn, left - 1)
            else:
                work()

    turn(turns + 1)
    return wanted.clear


class AsyncStory:
    def __init__(self, seed: int, broker: Broker, delivery: Literal["at-least-once", "at-most-once"]) -> None:
        self._random = Random(seed)
        self._broker = broker
        self._ahead = delivery == "at-most-once"
        self._options: dict[str, Any] = {
            "delivery": delivery,
            "batch_messages": 5,
            "commit_every": self._random.choice([0, 1]),
        }
        self._retries = not self._ahead and self._random.random() < 0.5
        if self._retries:
            by_key = self._random.random() < 0.5
            self._options["retry"] = Retry(attempts=3, backoff="1s", ordered_by_key=by_key)
        self._done: set[tuple[Where, int]] = set()
        self._ended: set[Origin] = set()  # where those were first stored that were worked on
        self._begun: set[tuple[Where, int]] = set()
        self._others: dict[Where, int] = {}  # what another member has committed last
        self._away: list[Where] = []
        self._excused = self._ending = self._calm = False
        self._fuse: int | None = None
        self._handed_out = 0
        self.threads: list[Turns] = []
        broker.make(TOPIC, len(PLACES))
        broker.on_commit = self._committed
        broker.fault = self._fault
        self._more(6)

    def thread(self, *_: object) -> Turns:
        """In place of the executor."""
        self.threads.append(Turns(self._random))
        return self.threads[-1]

    # The world

    @property
    def _raw(self) -> RawConsumer:
        assert self._broker.consumer is not None
        return self._broker.consumer

    def _more(self, count: int) -> None:
        for _ in range(count):
            key = self._random.choice([b"k", b"l"]) if self._retries else None
            self._broker.append(self._random.choice(PLACES), b"x", key, [])

    def _fault(self, call: str, _: bool) -> None:
        if call in ("partitions", "produce") and not any(thread.working for thread in self.threads):
            raise Violation(f"{call} stops the event loop")
        if self._fuse is not None and call in ("poll", "consume"):
            self._fuse -= 1
            if self._fuse < 0:
                self._fuse = None
                raise ValueError("a callback of the application's")

    def _rebalance(self) -> None:
        if self._raw.queue:
            return
        if self._away:
            self._raw.queue.append(("assign", self._away))
            self._away = []
            return
        kind = self._random.choice(["revoke", "revoke", "lost"])
        self._away = [place for place in sorted(self._raw.positions) if self._random.random() < 0.5]
        if self._away:
            self._excused |= kind == "lost"
            self._raw.queue.append((kind, list(self._away)))

    def _another_member(self) -> None:
        """Works on what is away, and commits it."""
        for place in self._away:
            if place in self._raw.positions:
                continue
            first = self._broker.committed.get(place, (0, ""))[0]
            for stored in self._broker.logs[place][first : first + 2]:
                self._begin(place, stored.number)
                self._done.add((place, stored.number))
                self._ended.add(Message(stored, None).origin)  # type: ignore[arg-type]
                self._others[place] = stored.number + 1
                self._broker.commit(place, stored.number + 1, "")

    # What must be true

    def _committed(self, place: Where, offset: int) -> None:
        if offset < self._others.get(place, 0):
            raise Violation(f"{place} is set back to {offset} behind another member")
        missing = [
            number
            for number in range(offset)
            if (place, number) not in self._done and not self._passed_on(place, number)
        ]
        if missing and not self._ahead:
            raise Violation(f"{place} is committed at {offset}, and {missing} are not done")

    def _passed_on(self, place: Where, number: int) -> bool:
        """Whether it lies where it is tried again, or has ended."""
        message = Message(self._broker.logs[place][number], None)  # type: ignore[arg-type]
        return any(
            other.origin == message.origin and (place in PLACES or other.attempt > message.attempt)
            for other in self._copies()
        )

    def _copies(self, ending: str = "") -> Iterator[Message]:
        for place, log in self._broker.logs.items():
            if place not in PLACES and place[0].endswith(ending):
                yield from (Message(stored, None) for stored in log)  # type: ignore[arg-type]

    def _begin(self, place: Where, number: int) -> None:
        if self._ahead and (place, number) in self._begun:
            raise Violation(f"{number} of {place} was handed out twice")
        self._begun.add((place, number))
        self._handed_out += 1

    def _check_end(self) -> None:
        seen = self._begun if self._ahead else self._done
        ended = self._ended | {message.origin for message in self._copies(".dlq")}
        for place in PLACES:
            for stored in self._broker.logs[place]:
                if (*place, stored.number) in ended:
                    continue
                if (place, stored.number) not in seen and not (self._ahead and self._excused):
                    raise Violation(f"{stored.number} of {place} was never worked on")

    # The application

    async def _within(self, turns: int, waiting: Awaitable[T]) -> T | None:
        """None when it took longer, as `asyncio.timeout` would have it."""
        me = asyncio.current_task()
        assert me is not None
        call_off = countdown(turns, me.cancel)
        try:
            return await waiting
        except asyncio.CancelledError:
            if self._ending:
                raise
            me.uncancel()
            return None
        finally:
            call_off()

    async def _work(self, consumer: AsyncConsumer, messages: list[Message]) -> None:
        for message in messages:
            self._begin((message.topic, message.partition), message.offset)
        for _ in range(self._random.randrange(3) * len(messages)):
            await asyncio.sleep(0)  # cancelled here, the batch is not done
        for message in messages:
            with consumer.handling(message):
                if self._retries and self._random.random() < 0.3:
                    raise slip(message.offset)
                self._done.add(((message.topic, message.partition), message.offset))
                self._ended.add(message.origin)

    async def _receive(self, consumer: AsyncConsumer, iterator: list[AsyncIterator[Message]]) -> None:
        if not iterator or self._random.random() < 0.3:
            iterator[:] = [aiter(consumer)]
        try:
            message = await self._within(self._patience(), anext(iterator[0]))
        except StopAsyncIteration:  # it ended with the wait that was cancelled
            message = None
        if message is None:
            iterator.clear()
        else:
            await self._work(consumer, [message])

    async def _batch(self, consumer: AsyncConsumer) -> None:
        batches = consumer.batches(size=3, wait=0.3)
        batch = await self._within(self._patience(), anext(batches))
        await self._work(consumer, batch or [])

    def _patience(self) -> int:
        return _WEARY_TURNS if self._calm or self._random.random() < 0.5 else self._random.randrange(12)

    async def _step(self, consumer: AsyncConsumer, iterator: list[AsyncIterator[Message]]) -> None:
        kind = self._random.choices(
            ["receive", "batch", "commit", "pause", "more", "rebalance", "another", "wait", "fuse", "seek"],
            [20, 8, 5, 3, 6, 5, 5, 5, 3, 1],
        )[0]
        if kind == "receive":
            await self._receive(consumer, iterator)
        elif kind == "batch":
            await self._batch(consumer)
        elif kind == "commit":
            await self._within(self._patience(), consumer.commit())
        elif kind == "pause":
            await self._within(self._patience(), consumer.pause(*self._random.choice(PLACES)))
            await self._within(self._patience(), consumer.resume())
        elif kind == "seek" and not self._ahead and (owned := self._owned()):
            place = self._random.choice(owned)
            self._others.pop(place, None)
            await self._within(self._patience(), consumer.seek(*place, 0))
        elif kind == "more":
            self._more(self._random.randrange(4))
        elif kind == "rebalance":
            self._rebalance()
        elif kind == "another":
            self._another_member()
        elif kind == "wait":
            self._broker.clock.now += self._random.choice([0.6, 1.5])
            self._raw.end_commits()
        elif kind == "fuse":
            self._fuse = self._random.randrange(4)

    def _owned(self) -> list[Where]:
        return [place for place in PLACES if place in self._raw.positions]

    def _assigned(self) -> list[Where]:
        return [*PLACES, *(place for place in self._broker.logs if place[0].endswith(".retry"))]

    async def _session(self) -> None:
        async with AsyncConsumer("scripted", TOPIC, group=GROUP, stop_on=(), **self._options) as consumer:
            self._raw.queue.append(("assign", self._assigned()))
            self._away = []
            iterator: list[AsyncIterator[Message]] = []
            for _ in range(_STEPS):
                with suppress(*_TROUBLE):
                    await self._step(consumer, iterator)

    async def _last_session(self) -> None:
        """All is well; what is left is worked off."""
        async with AsyncConsumer("scripted", TOPIC, group=GROUP, stop_on=(), **self._options) as consumer:
            self._raw.queue.append(("assign", self._assigned()))
            quiet = 0
            while quiet < _QUIET_ROUNDS:
                before = self._handed_out
                await self._receive(consumer, [])
                self._broker.clock.now += 1
                quiet = 0 if self._handed_out > before else quiet + 1

    # The telling

    async def _run(self, session: Awaitable[None], cancels: int) -> None:
        self._ending = False
        task = asyncio.ensure_future(session)
        if cancels:
            await self._turns(self._random.randrange(_TURNS_MAX), task)
        for _ in range(cancels):
            self._ending = True
            task.cancel()
            await self._turns(self._random.randrange(8), task)
        await self._turns(_TURNS_MAX if cancels else 100 * _TURNS_MAX, task)
        if not task.done():
            raise Violation("leaving has no end")
        with suppress(asyncio.CancelledError, *_TROUBLE):
            task.result()
        for thread in self.threads:
            for violation in thread.violations:
                raise violation
        for _ in range(_TURNS_MAX):
            if not any(thread.busy for thread in self.threads):
                break
            await asyncio.sleep(0)
        self._fuse = None

    @staticmethod
    async def _turns(count: int, task: "asyncio.Future[None]") -> None:
        for _ in range(count):
            if task.done():
                return
            await asyncio.sleep(0)

    async def tell(self) -> None:
        for _ in range(_SESSIONS):
            before = self._broker.consumer
            await self._run(self._session(), self._random.choice([0, 1, 1, 2, 3]))
            if self._broker.consumer is not before and not self._raw.closed:
                raise Violation("a consumer was made and never closed")
        self._calm = True
        await self._run(self._last_session(), 0)
        self._check_end()
