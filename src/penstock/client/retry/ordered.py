"""Retries that keep the order of each key.

Source and retry topic have the same partitions, and the range assignor gives partition p of both to one member.
Where they differ, neither is read: a key that waits in one member's retry partition would be overtaken in another
member's source partition. The retry topic is made to grow as the source has, and to shrink (retry_retiring). When
a message of a key fails, it goes to partition p of the retry topic, and every later message of that key goes there
behind it without being tried. A retry partition is worked off strictly in order: a message that fails again is not
sent on but tried again in its place, so that those behind it wait. How often it has failed is kept in the metadata
of the group's commit, where it survives a restart. Which keys wait is read from the retry partition when it is
assigned. After its last try a message has ended when its dead letter is acknowledged: until then, its key waits.

The price: within the retry topic, one stubborn message delays the other waiting keys of its partition.
"""

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import KafkaException, TopicPartition

from penstock.client.admin.admin import Admin
from penstock.client.connect import REQUEST_SECONDS, handle_settings
from penstock.client.consuming.reader_errors import PASSING
from penstock.client.consuming.starting import told
from penstock.client.consuming.unfinished import Where, where
from penstock.client.errors import ClientError
from penstock.client.message import Message
from penstock.client.retry import headers as retry_headers
from penstock.client.retry.flow import Outcome, Passing, RetryFlow, TriedAgain, now_ms
from penstock.client.retry.notes import Tries, note, tries_of
from penstock.client.retry.policy import retry_topic
from penstock.client.retry.retiring import Retiring, unless_deleted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message as RawMessage

    from penstock.client.consuming.reader import Reader
    from penstock.client.delivery import Delivery

_SCAN_SECONDS = 0.1
_HISTORY_KEPT = 3


class OrderedRetryFlow(RetryFlow):
    ordered = True

    def _ensure_retries(self, admin: Admin, topic: str, partitions: int) -> None:
        name = retry_topic(topic, self._group)
        self._ensure(admin, name, topic, partitions, self._policy.longest_seconds)

    @property
    def settings(self) -> dict[str, Any]:
        return {"partition.assignment.strategy": "range"}

    def _prepare(self) -> None:
        # Keys that wait, by source partition: the offset of the last message of each in the retry partition. Not how
        # many there are: one whose answer was lost is there twice.
        self._waiting: dict[Where, dict[bytes, int]] = {}
        self._tries: dict[Where, Tries] = {}
        self._retiring = Retiring(self._bootstrap, self._sources, self._has_foreign)

    # Taking over partitions

    def assigned(self, reader: "Reader", partitions: list[TopicPartition]) -> None:
        """What an earlier owner left: tries under way, and keys that wait."""
        admin = Admin(self._bootstrap)
        for topic in self._sources.values():
            with unless_deleted():
                self._ensure_retries(admin, topic, len(admin.partition_indexes(topic)))
        self._bar_strays(reader)
        mine = [partition for partition in partitions if partition.topic in self._sources]
        if not mine:
            return
        # It is told before the next commit; what is left then is not in its partition.
        with suppress(ClientError):
            self.wait_for_deliveries()
        for partition in told(reader.raw.committed(mine, timeout=REQUEST_SECONDS)):
            place = (partition.topic, partition.partition)
            source = (self._sources[partition.topic], partition.partition)
            self._tries.pop(place, None)
            tries = tries_of(partition.offset, partition.metadata)
            if tries is not None:
                self._tries[place] = tries
            self._waiting[source] = self._scan(place, partition.offset)

    def _bar_strays(self, reader: "Reader") -> None:
        """Source partitions whose retry partition is not ours wait for the rebalance that brings them together."""
        owned = set(reader.owned)
        strays = {
            (topic, index)
            for topic, index in owned
            if topic not in self._sources and (retry_topic(topic, self._group), index) not in owned
        }
        reader.bar(strays | (self._retiring.waiting(reader) & owned))

    def _scan(self, place: Where, start: int) -> dict[bytes, int]:
        """The keys in a retry partition from where the group stands to the end."""
        own = (message for message in self._lying(place, start) if not self._is_foreign(message))
        return {
            key: offset
            for message in own
            if isinstance(key := message.key(), bytes) and (offset := message.offset()) is not None
        }

    def _has_foreign(self, place: Where) -> bool:
        return any(self._is_foreign(message) for message in self._lying(place, 0))

    def _lying(self, place: Where, start: int) -> "Iterator[RawMessage]":
        """What is in a retry partition, from an offset to the end."""
        settings = {
            "group.id": "penstock-no-group",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # retention has overtaken it: it is looked at anew
        }
        raw = RawConsumer(handle_settings(self._bootstrap, debug=False, **settings))
        try:
            at = TopicPartition(*place)
            first, end = raw.get_watermark_offsets(at, timeout=REQUEST_SECONDS)
            position = max(start, first)
            raw.assign([TopicPartition(*place, position)])
            deadline = time.monotonic() + REQUEST_SECONDS  # for the next message, not for all
            while position < end:
                for message in raw.consume(500, _SCAN_SECONDS):
                    offset, error = message.offset(), message.error()
                    if error is not None and error.code() not in PASSING:
                        raise KafkaException(error)
                    if error is None and offset is not None:
                        position, deadline = offset + 1, time.monotonic() + REQUEST_SECONDS
                        if offset < end:
                            yield message
                if time.monotonic() >= deadline:
                    raise ClientError(
                        f"{place[0]}, partition {place[1]}: which keys wait there could not be read within "
                        f"{REQUEST_SECONDS:g} s; it is tried again"
                    )
        finally:
            raw.close()

    # Handing out

    def admit(self, reader: "Reader", raws: "list[RawMessage]") -> "list[RawMessage]":
        fresh = any(raw.topic() not in self._sources for raw in raws)
        waits = bool(self._under_way) or any(self._waiting.values())
        if self._retiring.look_due(urgent=fresh and waits):
            self._bar_strays(reader)
            raws = reader.paused.without_held(raws)
        return super().admit(reader, raws)

    def _due_ms(self, raw: "RawMessage") -> int:
        tries = self._tries.get(where(raw))
        if tries is not None and tries["offset"] == raw.offset():
            return int(tries["due"])
        return 0 if self._is_foreign(raw) else super()._due_ms(raw)

    def gate(self, reader: "Reader", raw: "RawMessage") -> bool:
        """A message whose key waits goes to wait behind it."""
        topic, partition = where(raw)
        key = raw.key()
        if self._behind(topic, partition, key):
            # Should the one before be refused, this one must neither lie before it nor be worked on.
            self.wait_for_deliveries()
        if topic in self._sources:
            return self._is_foreign(raw)
        waiting = self._waiting.get((topic, partition))
        if not waiting or key not in waiting:
            return False
        message = Message(raw, None)
        try:
            headers = retry_headers.parked(self._own_headers(message), self._first(message), now_ms())
            self._forward(self._behind_its_key(message, headers))
        except ClientError as error:  # it will be sent again; the loop says what was wrong
            reader.failure.note(error)
        return True

    def gate_waits(self, raw: "RawMessage") -> bool:
        topic, partition = where(raw)
        waiting = self._waiting.get((topic, partition))
        return self._behind(topic, partition, raw.key()) or bool(waiting and raw.key() in waiting)

    def _behind(self, topic: str, partition: int, key: object) -> bool:
        """Whether an earlier message of a key is under way to its next place."""
        if not self._under_way or key is None:
            return False
        place = (self._sources.get(topic, topic), partition)
        for passing in self._under_way:
            topic, partition = passing.source
            if passing.key == key and (self._sources.get(topic, topic), partition) == place:
                return True
        return False

    def _behind_its_key(self, message: Message, headers: list[tuple[str, Any]]) -> Passing:
        """`message` is of the source; its retry partition has the same number."""
        partition = message.partition
        return self._passing(message, retry_topic(message.topic, self._group), headers, lambda: partition)

    def _arrived(self, passing: Passing, delivery: "Delivery") -> None:
        """Its key waits. Nothing of that key was handed out since it was sent: `gate` settles first."""
        if passing.topic not in self._sources or passing.key is None:
            return
        offset = delivery.result().offset
        if offset is None:  # a broker that knew the message already may not know where it is
            index = passing.source[1]
            offset = Admin(self._bootstrap).latest(passing.topic, [index])[index] - 1
        waiting = self._waiting.setdefault(passing.source, {})
        waiting[passing.key] = max(offset, waiting.get(passing.key, offset))

    # What became of a body

    def succeeded(self, reader: "Reader", message: Message) -> None:
        self._end(reader, message)

    def _end(self, reader: "Reader", message: Message) -> None:
        if message.topic in self._sources:
            self._done(reader, message)

    def decide(self, message: Message, error: Exception) -> Outcome:
        failures = self.attempt(message)
        if failures >= self._policy.attempts:
            return self._given_up(message, error)
        wait_seconds = self._policy.wait_seconds(failures)
        due = now_ms() + round(wait_seconds * 1000)
        if message.topic not in self._sources:
            return Outcome(self._behind_its_key(message, self._failed_headers(message, error, due)))
        told = [
            *self._earlier(message)[1],
            {"at": now_ms(), "error": retry_headers.one_line(self._reason(error))},
        ]
        return Outcome(again=TriedAgain(failures, due, wait_seconds, told))

    def apply(self, reader: "Reader", message: Message, outcome: Outcome) -> None:
        if outcome.again is not None:
            self._try_again(reader, message, outcome.again)
        elif outcome.given_up:
            self._end(reader, message)  # also where its dead letter cannot be sent at once: that is kept
            super().apply(reader, message, outcome)
        else:
            super().apply(reader, message, outcome)
            self._look(reader)

    def _try_again(self, reader: "Reader", message: Message, again: TriedAgain) -> None:
        place = (message.topic, message.partition)
        tries: Tries = {"offset": message.offset, "failures": again.failures, "due": again.due_ms}
        self._tries[place] = {**tries, "history": again.history}
        self._waits.pop(place, None)  # it waits anew
        reader.commits.note(place, message.offset, note(tries, again.history[-_HISTORY_KEPT:]))
        reader.try_again(place, message.offset, again.wait_seconds)

    def _look(self, reader: "Reader") -> None:
        """Pending messages of its key may be here already, moved from its partition."""
        try:
            if self._retiring.look_due(urgent=True):
                self._bar_strays(reader)
        except (ClientError, KafkaException) as error:
            reader.failure.note(error, "partitions that are retired")

    def _earlier(self, message: Message) -> retry_headers.Failures:
        """In its headers until it fails in place, from then on in the tries."""
        tries = self._tries.get((message.topic, message.partition))
        if tries is not None and tries["offset"] == message.offset:
            return int(tries["failures"]), list(tries["history"])
        return super()._earlier(message)

    def _done(self, reader: "Reader", message: Message) -> None:
        """Its key waits no longer, unless for one behind it."""
        place = (message.topic, message.partition)
        self._tries.pop(place, None)
        reader.unfinished.unpin(place)
        waiting = self._waiting.get((self._sources[message.topic], message.partition))
        if waiting is not None and message.key is not None and waiting.get(message.key, -1) <= message.offset:
            waiting.pop(message.key, None)
