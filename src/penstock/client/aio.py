"""The asyncio flavours: the same producer and consumer, with waiting that lets other coroutines run.

    async with AsyncProducer("127.0.0.1:9092") as producer:
        sent = await (await producer.send("orders", b"…"))      # the first await is for room, the second for the answer

    async with AsyncConsumer("127.0.0.1:9092", "orders", group="billing") as consumer:
        async for message in consumer:
            await bill(message.value)

Nothing is written twice: what waits in the plain classes is called in a thread, one at a time, and everything
that does not wait is called as it is. Arguments are those of `Producer` and `Consumer`.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from penstock.client.consuming.consumer import Consumer
from penstock.client.consuming.gathering import Gathering
from penstock.client.consuming.reader import WAIT_SECONDS
from penstock.client.consuming.stopping import Stop
from penstock.client.delivery import Delivery, DeliveryBatch
from penstock.client.errors import ClientError
from penstock.client.message import Message
from penstock.client.producer import BufferFullError, Producer

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("penstock.client")

_ROOM_SECONDS = 0.005


def _arguments_of(
    _: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """For type checkers: a method that takes what another one takes."""
    return lambda method: method


async def until_done(delivery: Delivery) -> None:
    """Wait for a delivery; the collecting thread is told that somebody does."""
    if delivery.done():
        return
    loop = asyncio.get_running_loop()
    answered = loop.create_future()

    def answer() -> None:
        if not answered.done():
            answered.set_result(None)

    with delivery.awaited(lambda: loop.call_soon_threadsafe(answer)):
        await answered


class AsyncProducer:
    """`Producer` for coroutines."""

    @_arguments_of(Producer.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        self._make = lambda: Producer(*args, **options)
        self._producer: Producer | None = None

    async def __aenter__(self) -> Self:
        self._producer = await asyncio.to_thread(self._make)  # looks whether a broker is there
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._producer is not None:
            await asyncio.to_thread(self._producer.close)

    @property
    def _open(self) -> Producer:
        if self._producer is None:
            raise ClientError("this producer is not open: use `async with AsyncProducer(…) as producer`")
        return self._producer

    @_arguments_of(Producer.send)
    async def send(self, *args: Any, **message: Any) -> Delivery:
        """Hand over a message, waiting for room if need be; `await` the delivery to know where it went."""
        while True:
            try:
                return self._open.send(*args, **message, wait_for_room=False)
            except BufferFullError:
                await asyncio.sleep(_ROOM_SECONDS)

    @_arguments_of(Producer.send_many)
    async def send_many(self, *args: Any, **messages: Any) -> DeliveryBatch:
        """Hand over many, and wait until all are acknowledged."""

        def work() -> DeliveryBatch:
            return self._open.send_many(*args, **messages).result()

        return await asyncio.to_thread(work)

    async def flush(self) -> None:
        await asyncio.to_thread(self._open.flush)


class AsyncConsumer:
    """`Consumer` for coroutines. SIGTERM ends the loop where the event loop runs in the main thread.

    The signal is noticed at once, not when the event loop comes round to it: a body that never awaits must not
    be handed everything that was taken before it can end.
    """

    @_arguments_of(Consumer.__init__)
    def __init__(self, *args: Any, stop_on: Any = (signal.SIGTERM,), **options: Any) -> None:
        self._make: Callable[[], Consumer] = lambda: Consumer(*args, stop_on=(), **options)
        self._consumer: Consumer | None = None
        self._stop = Stop(stop_on, then=self._stop_taking)
        # One thread for the life of the consumer: its reader is used by one thread at a time, in order.
        self._thread = ThreadPoolExecutor(1, "penstock-consumer")
        self._at_work: asyncio.Future[Any] | None = None

    async def _call(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        await self._idle()

        def call() -> R:
            self._pass_on()
            return work(*args, **kwargs)

        self._at_work = at_work = asyncio.get_running_loop().run_in_executor(self._thread, call)
        await self._idle()
        return at_work.result()

    def _pass_on(self) -> None:
        """Before anything that takes the messages in hand for done. It may wait, so the thread does it."""
        if self._consumer is not None:
            self._consumer.bodies.settle()

    async def _idle(self) -> None:
        """Until the thread is at rest. It cannot be stopped in the middle, so a cancelled wait leaves it at work: what
        it takes then is for who asks next, and so is what it raises. Nobody else may touch the reader before."""
        while self._at_work is not None:
            at_work = self._at_work
            try:
                await asyncio.shield(at_work)
            finally:
                if at_work.done() and self._at_work is at_work:
                    self._at_work = None

    async def __aenter__(self) -> Self:
        try:
            await self._call(self._begin)
        except BaseException:
            self._thread.submit(self._abandon)  # nobody will leave, and the thread may still be at it
            raise
        self._stop.listen()
        return self

    def _begin(self) -> None:
        self._consumer = self._make()

    def _abandon(self) -> None:
        consumer, self._consumer = self._consumer, None
        try:
            if consumer is not None:
                consumer.close()
        except ClientError as error:
            logger.warning("a consumer that nobody waited for could not be closed: %r", error)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.restore()
        try:
            await self._leave(kind)
        finally:
            self._thread.shutdown(wait=False)

    async def _leave(self, kind: type[BaseException] | None) -> None:
        closing: asyncio.Future[None] | None = None
        if self._consumer is not None:
            # Behind whatever the thread is at, however that ends, and also if the wait for it here is cancelled.
            closing = asyncio.get_running_loop().run_in_executor(self._thread, lambda: self._close(kind))
        try:
            await self._idle()
        except Exception as error:
            logger.warning("the consumer was closed before anybody heard of this: %r", error)
        if closing is not None:
            await asyncio.shield(closing)

    def _close(self, kind: type[BaseException] | None) -> None:
        self._open.__exit__(kind, None, None)

    @property
    def _open(self) -> Consumer:
        if self._consumer is None:
            raise ClientError("this consumer is not open: use `async with AsyncConsumer(…) as consumer`")
        return self._consumer

    async def __aiter__(self) -> AsyncIterator[Message]:
        steps, retrying = (
            self._open.steps,
            self._open.retrying,
        )  # what is noted of bodies keeps the steps busy
        while not self._stop.wanted:
            if self._at_work is not None:
                await self._idle()  # a call that the body began and did not wait for
            waits = steps.busy or (retrying is not None and retrying.waits)
            message = None if waits else steps.next_taken()
            if message is not None:
                yield message
            else:
                await self._call(self._take)

    def _take(self) -> None:
        self._open.steps.take(WAIT_SECONDS)
        if self._open.retrying is not None:
            self._open.retrying.pass_gate()

    async def batches(self, size: int = 500, wait: float = 1.0) -> AsyncIterator[list[Message]]:
        """As `Consumer.batches`."""
        steps = self._open.steps
        steps.check_batch(size)
        await self._call(steps.gather, 0)  # asking says that those before are done
        gathering = Gathering(size, wait)
        while not self._stop.wanted:
            left = gathering.wait_left(steps.taken)
            if left is None:
                # Handed out here, not by the thread: a wait that is cancelled must not take a batch with it.
                if await self._call(steps.promise, size):
                    yield steps.next_batch(size)
                gathering = Gathering(size, wait)
                left = 0
            await self._call(steps.gather, left)

    @contextmanager
    def handling(self, message: Message) -> Iterator[None]:
        """As `Consumer.handling`: a plain `with`, also around a body that awaits.

        A message that failed is passed on when the next one is asked for, or at the end.
        """
        bodies = self._open.bodies
        bodies.open[id(message)] = message
        try:
            yield
        except BaseException as error:
            bodies.notes.append((message, error))
            if not bodies.passes_on(error):
                raise
        else:
            if bodies.notes:
                bodies.notes.append((message, None))
            else:
                bodies.succeeded(message)  # which does not wait
        finally:
            bodies.open.pop(id(message), None)

    async def run(self, handler: Callable[[Message], Awaitable[object]]) -> None:
        """Await `handler` for every message until `stop()` or SIGTERM, retrying as `retry` says."""
        async for message in self:
            with self.handling(message):
                await handler(message)

    @_arguments_of(Consumer.seek)
    async def seek(self, *args: Any, **kwargs: Any) -> None:
        await self._call(self._open.seek, *args, **kwargs)

    @_arguments_of(Consumer.pause)
    async def pause(self, *args: Any, **kwargs: Any) -> None:
        await self._call(self._open.pause, *args, **kwargs)

    @_arguments_of(Consumer.resume)
    async def resume(self, *args: Any, **kwargs: Any) -> None:
        await self._call(self._open.resume, *args, **kwargs)

    async def commit(self) -> None:
        await self._call(self._open.commit)

    def stop(self) -> None:
        """End the loop after the present body."""
        self._stop.request()

    def _stop_taking(self) -> None:
        if self._consumer is not None:
            self._consumer.stop()
