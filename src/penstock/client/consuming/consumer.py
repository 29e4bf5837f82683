"""The consumer: a loop over messages that commits before or after the body, as you chose."""

import logging
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

from penstock.client.consuming.bodies import Bodies
from penstock.client.consuming.commits import Plan, check_plan
from penstock.client.consuming.gathering import Gathering
from penstock.client.consuming.reader import ATTEND_SECONDS, WAIT_SECONDS, Reader
from penstock.client.consuming.starting import Start, checked_start, seek_to
from penstock.client.consuming.steps import Steps
from penstock.client.consuming.stopping import Stop
from penstock.client.consuming.unfinished import Where
from penstock.client.consuming.values import value_reader
from penstock.client.encryption import Encryption
from penstock.client.errors import ClientError, ClosedError
from penstock.client.message import Message
from penstock.client.profiles import Delivery, Profile, consumer_settings
from penstock.client.retry.flow import RetryFlow, retry_flow
from penstock.client.retry.policy import Retry
from penstock.client.retry.retrying import Retrying
from penstock.client.serializers import Deserializer

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

logger = logging.getLogger("penstock.client")

# How many messages are taken from librdkafka at once: enough to keep Python out of the way of a fast broker.
_BATCH_MESSAGES = 500
_COMMIT_SECONDS = 1.0


class Consumer:
    """Reads topics, alone or as a member of a group.

        with Consumer("127.0.0.1:9092", "orders", group="billing") as consumer:
            for message in consumer:
                bill(message.value)

    With `delivery="at-least-once"` (the default) a message is committed after its body is done: asking for the next
    message says so, and so does leaving the `with` block without an exception. A crash brings the messages since the
    last commit again (`commit_every` seconds; 0 commits each). With "at-most-once" messages are committed before the
    body sees them; a crash loses what was taken but not worked on (at most `batch_messages`; `commit_every=0` takes
    them one by one).

    Without a `group` all partitions are read and nothing is committed. `start` says where to begin where no commit
    does: "earliest", "latest", a datetime, a timedelta (that long ago), an offset, or `{partition: offset}`.

    SIGTERM ends the loop after the present body, commits and leaves the group; `stop()` does the same from another
    thread. `retry` says what happens to messages whose body raises: see `handling` and `run`.
    """

    def __init__(
        self,
        bootstrap: str,
        topics: str | Iterable[str],
        *,
        group: str | None = None,
        delivery: Delivery = "at-least-once",
        start: Start = "earliest",
        profile: Profile = "balanced",
        deserializer: Deserializer = "bytes",
        encryption: Encryption | None = None,
        retry: Retry | None = None,
        batch_messages: int = _BATCH_MESSAGES,
        commit_every: float = _COMMIT_SECONDS,
        stop_on: Sequence[signal.Signals] = (signal.SIGTERM,),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        check_plan(names, group, delivery, retry, batch_messages)
        start = checked_start(start)
        one_by_one = delivery == "at-most-once" and commit_every <= 0
        self._read = value_reader(deserializer, encryption)
        self._stop = Stop(stop_on)
        self._flow: RetryFlow | None = None
        settings = consumer_settings(profile, config)
        if retry is not None and group is not None:
            self._flow = retry_flow(bootstrap, names, group, retry, sealed=encryption is not None)
            settings |= self._flow.settings
        self._reader = Reader(
            Plan(
                bootstrap,
                names,
                group,
                delivery,
                start,
                1 if one_by_one else batch_messages,
                commit_every,
                settings,
            ),
            admit=None if self._flow is None else self._flow.admit,
            before_commit=None if self._flow is None else self._flow.wait_for_deliveries,
            assigned=None if self._flow is None else self._flow.assigned,
            forgotten=None if self._flow is None else self._flow.forgotten,
            before_end=None if self._flow is None else self._flow.send_refused,
            retries=() if self._flow is None else self._flow.retry_topics,
        )
        self.retrying = None if self._flow is None else Retrying(self._flow, self._reader)
        commit_each = commit_every <= 0 and delivery == "at-least-once" and group is not None
        self.bodies = Bodies(self._reader, self._flow)
        self.steps = Steps(
            self._reader, self._read, self._flow, self.retrying, self.bodies, commit_each=commit_each
        )
        self._reader.open(names if self._flow is None else self._flow.topics)

    # Reading

    def __iter__(self) -> Iterator[Message]:
        """Messages until `stop()` or SIGTERM; waits for new ones."""
        self._stop.listen()
        reader, unfinished, read, stop = self._reader, self._reader.unfinished, self._read, self._stop
        retries, ahead, steps, bodies = self._flow, self._reader.ahead, self.steps, self.bodies
        gate = None if self._flow is None else self._flow.gate
        monotonic = time.monotonic
        steps.in_hand = 1
        bodies.given = None
        attend_at = monotonic() + ATTEND_SECONDS
        while not stop.wanted:
            if bodies.notes:
                bodies.settle()
            raws, index = unfinished.raws, unfinished.index
            if index >= len(raws):
                unfinished.finish()
                reader.refill()
                attend_at = monotonic() + ATTEND_SECONDS
                continue
            if ahead.held:  # a batch was gathered before
                reader.promise()
                continue
            raw = raws[index]
            passed_on = gate is not None and gate(reader, raw)  # what raises there has not been handed out
            if passed_on:
                unfinished.index = index + 1
                continue
            bodies.given = message = Message(raw, read, retries)
            unfinished.index = index + 1  # the very last thing: see `steps`
            yield message
            bodies.given = None  # asked on
            if bodies.notes:
                bodies.settle()
            if steps.commit_each:
                unfinished.finish()
                reader.commit()
            if monotonic() >= attend_at:
                reader.attend()
                attend_at = monotonic() + ATTEND_SECONDS
        self._end(in_hand=0)

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message, or None when none came in time. Asking says that the one before is done."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        self._stop.listen()
        while not self._stop.wanted:
            if self.steps.busy:
                self.steps.take(0)
            message = self.steps.next_taken()
            if message is not None:
                return message
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self.steps.take(min(WAIT_SECONDS, left))
        self._end(in_hand=0)
        return None

    def receive_many(self, most: int = _BATCH_MESSAGES, timeout: float | None = None) -> list[Message]:
        """Up to `most` messages that are there, waiting for the first; an empty list when none came in time.

        Asking says that those before are done. `batches` waits until a batch has filled up.
        """
        self.steps.check_batch(most)
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        self._stop.listen()
        while not self._stop.wanted:
            if self.steps.busy:
                self.steps.take(0)
            found = self.steps.next_batch(most)
            if found:
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                return []
            self.steps.take(min(WAIT_SECONDS, left))
        self._end(in_hand=0)
        return []

    def batches(self, size: int = _BATCH_MESSAGES, wait: float = 1.0) -> Generator[list[Message], None, None]:
        """Lists of up to `size` messages, gathered for at most `wait` seconds; committed whole."""
        return self._batches(size, wait, lambda messages: messages)

    def tables(self, size: int = _BATCH_MESSAGES, wait: float = 1.0) -> "Generator[pa.Table, None, None]":
        """Batches as Arrow tables; needs the extra arrow."""
        from penstock.client.arrow import table_of  # noqa: PLC0415 - pyarrow only for those who ask

        decoded = self._read is not None
        return self._batches(size, wait, lambda messages: table_of(messages, decoded=decoded))

    def _batches(
        self, size: int, wait: float, made: Callable[[list[Message]], T]
    ) -> Generator[T, None, None]:
        self.steps.check_batch(size)
        self._stop.listen()
        gathering = Gathering(size, wait)
        while not self._stop.wanted:
            left = gathering.wait_left(self.steps.taken)
            if left is None:
                if self.steps.promise(size):
                    yield self.steps.next_batch_as(size, made)
                gathering = Gathering(size, wait)
                self.steps.gather(0)
            else:
                self.steps.gather(left)
        self._end(in_hand=0)

    # Failing

    @contextmanager
    def handling(self, message: Message) -> Iterator[None]:
        """A body that may raise: what it raises sends the message to its next try, and the loop goes on.

            for message in consumer:
                with consumer.handling(message):
                    bill(message.value)

        A `for` loop cannot see what its body raised, so the body needs a block of its own; `run` is the short form.
        Without `retry` nothing is caught. KeyboardInterrupt and the like are never caught. At-least-once, a message
        whose body something leaves that is not caught is not done: it comes again.
        """
        bodies = self.bodies
        bodies.open[id(message)] = message
        try:
            yield
        except BaseException as error:
            bodies.notes.append((message, error))  # first of all
            bodies.given = None  # behind the note: known at every moment
            bodies.open.pop(id(message), None)
            if not bodies.passes_on(error):
                raise
        else:
            if bodies.noted_in_order:
                bodies.notes.append((message, None))
            bodies.given = None
            bodies.open.pop(id(message), None)
        bodies.settle()

    def run(self, handler: Callable[[Message], object]) -> None:
        """Call `handler` with every message until `stop()` or SIGTERM, retrying as `retry` says."""
        try:
            for message in self:
                with self.handling(message):
                    handler(message)
        except ClientError:  # of ours: what became of the body is known
            raise
        except BaseException as error:
            self.bodies.broke_off(error)
            raise

    # Moving about

    def seek(self, topic: str, partition: int, to: Start) -> None:
        """Go on reading a partition elsewhere: an offset, a datetime, "earliest" or "latest".

        Going back, the group goes back with the next commit, too: what is to be read again is not passed.
        Behind a body that failed this says where to go on, be it past its message.
        """
        to = checked_start(to)
        self._settle()  # or what became of that body would be acted upon later, and undo this
        self._reader.seek(seek_to(self._reader.raw, to, (topic, partition)))

    def pause(self, topic: str | None = None, partition: int | None = None) -> None:
        """Stop handing out messages of a partition, a topic or (without arguments) everything owned now."""
        self._settle()
        self._reader.pause(self._chosen(topic, partition))

    def resume(self, topic: str | None = None, partition: int | None = None) -> None:
        self._settle()
        # Also what was paused before another member took it: it may come back.
        self._reader.resume(self._chosen(topic, partition, self._reader.paused.by_user))

    def _chosen(self, topic: str | None, partition: int | None, beside: Iterable[Where] = ()) -> list[Where]:
        if topic is not None and partition is not None:
            return [(topic, partition)]
        return [place for place in sorted({*self._reader.owned, *beside}) if topic in (None, place[0])]

    @property
    def assignment(self) -> list[Where]:
        """The partitions this consumer reads now, as (topic, partition)."""
        return self._reader.owned

    @property
    def joined(self) -> bool:
        """Whether the group has assigned it partitions; there may be none for it. True without a group."""
        return self._reader.joined

    @property
    def rebalances(self) -> int:
        """How often partitions came or went."""
        return self._reader.membership.rebalances

    @property
    def at_end(self) -> frozenset[Where]:
        """Which of its partitions it has read to their end; known where config has `enable.partition.eof`."""
        return frozenset(self._reader.membership.at_end)

    @property
    def stopped(self) -> bool:
        """Whether `stop()` or a signal has ended it."""
        return self._stop.wanted

    def commit(self) -> None:
        """Commit now, and wait for it: everything up to and with the message in hand."""
        if self._reader.closed:
            raise ClosedError("this consumer is closed: make another one")
        self.bodies.settle()
        self._reader.unfinished.finish()
        self._reader.commit()

    # Ending

    def stop(self) -> None:
        """End the loop after the present body; may be called from another thread or a signal handler."""
        self._stop.wanted = True

    def close(self) -> None:
        """Commit and leave the group; closing twice does nothing.

        Called while an exception is on its way, the message in hand does not count as done.
        """
        self._end(in_hand=self.steps.in_hand if sys.exc_info()[0] is not None else 0)

    def _end(self, *, in_hand: int) -> None:
        self._stop.restore()
        try:
            self._settle()
        finally:
            try:
                self.bodies.leave()
                self._reader.close(in_hand=in_hand)
            finally:
                if self._flow is not None:
                    self._flow.close()

    def _settle(self) -> None:
        if not self._reader.closed:
            self.bodies.settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._end(in_hand=0 if kind is None else self.steps.in_hand)
        except Exception as error:
            if kind is None:
                raise
            # What the body raised says more.
            logger.warning("the consumer could not be closed properly: %r", error)
