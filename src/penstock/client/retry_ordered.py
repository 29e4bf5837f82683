"""Retries that keep the order of each key.

Source and retry topic have the same partitions, and the range assignor gives partition p of both to one member.
Where they differ, neither is read: a key that waits in one member's retry partition would be overtaken in another
member's source partition. The retry topic is made to grow as the source has; it cannot be made smaller from here. When
a message of a key fails, it goes to partition p of the retry topic, and every later message of that key goes there
behind it without being tried. A retry partition is worked off strictly in order: a message that fails again is not
sent on but tried again in its place, so that those behind it wait. How often it has failed is kept in the metadata
of the group's commit, where it survives a restart. Which keys wait is read from the retry partition when it is
assigned.

The price: within the retry topic, one stubborn message delays the other waiting keys of its partition.
"""

import json
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import KafkaException, TopicPartition

from penstock.client import retry_headers
from penstock.client.admin import Admin
from penstock.client.connect import REQUEST_SECONDS, handle_settings
from penstock.client.errors import ClientError
from penstock.client.message import Message
from penstock.client.reader_errors import PASSING
from penstock.client.retry import retry_topic
from penstock.client.retry_flow import RetryFlow, now_ms
from penstock.client.starting import told
from penstock.client.window import Where, where

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

    from penstock.client.reader import Reader

_Tries = dict[str, Any]  # {"offset": …, "failures": …, "due": epoch ms, "history": […]}
_SCAN_SECONDS = 0.1
_HISTORY_KEPT = 3  # commit metadata is small: Kafka takes 4096 bytes


class OrderedRetryFlow(RetryFlow):
    ordered = True

    def _ensure_retries(self, admin: Admin, topic: str, partitions: int) -> None:
        name = retry_topic(topic, self._group)
        self._ensure(admin, name, partitions)
        found = len(admin.partition_indexes(name))
        if found > partitions:
            raise ClientError(
                f"{topic} has {partitions} partitions and {name} has {found}: with ordered_by_key they must have the "
                f"same number, `penstock topic alter {name} --partitions {partitions}`"
            )

    @property
    def settings(self) -> dict[str, Any]:
        return {"partition.assignment.strategy": "range"}

    def _prepare(self) -> None:
        # Keys that wait, by source partition: how many messages of each are in the retry partition.
        self._waiting: dict[Where, Counter[bytes]] = {}
        self._tries: dict[Where, _Tries] = {}

    # Taking over partitions

    def assigned(self, reader: "Reader", partitions: list[TopicPartition]) -> None:
        """What an earlier owner left: tries under way, and keys that wait."""
        self._bar_strays(reader)
        mine = [one for one in partitions if one.topic in self._sources]
        if not mine:
            return
        with suppress(
            ClientError
        ):  # it is told before the next commit; what is left then is not in its partition
            self.settle()
        for one in told(reader.raw.committed(mine, timeout=REQUEST_SECONDS)):
            place = (one.topic, one.partition)
            source = (self._sources[one.topic], one.partition)
            self._tries.pop(place, None)
            tries = _tries_of(one)
            if tries is not None:
                self._tries[place] = tries
            waiting = self._scan(place, one.offset)
            waiting.update(
                passing.key
                for passing in self._under_way
                if passing.source == source and passing.topic == one.topic and passing.key is not None
            )
            self._waiting[source] = waiting

    def _bar_strays(self, reader: "Reader") -> None:
        """Source partitions whose retry partition is not ours wait for the rebalance that brings them together."""
        owned = set(reader.owned)
        strays = {
            (topic, index)
            for topic, index in owned
            if topic not in self._sources and (retry_topic(topic, self._group), index) not in owned
        }
        reader.holding.bar(strays)
        admin = Admin(self._bootstrap)
        for topic in self._sources.values():
            self._ensure_retries(admin, topic, len(admin.partition_indexes(topic)))

    def _scan(self, place: Where, start: int) -> Counter[bytes]:
        """The keys in a retry partition from where the group stands to the end."""
        settings = {
            "group.id": "penstock-no-group",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # retention has overtaken it: it is looked at anew
        }
        raw = RawConsumer(handle_settings(self._bootstrap, debug=False, **settings))
        keys: Counter[bytes] = Counter()
        try:
            at = TopicPartition(*place)
            first, end = raw.get_watermark_offsets(at, timeout=REQUEST_SECONDS)
            position = max(start, first)
            raw.assign([TopicPartition(*place, position)])
            deadline = time.monotonic() + REQUEST_SECONDS  # for the next message, not for all
            while position < end:
                for message in raw.consume(500, _SCAN_SECONDS):
                    offset, key, error = message.offset(), message.key(), message.error()
                    if error is not None and error.code() not in PASSING:
                        raise KafkaException(error)
                    if error is None and offset is not None:
                        position, deadline = offset + 1, time.monotonic() + REQUEST_SECONDS
                        if isinstance(key, bytes) and offset < end:
                            keys[key] += 1
                if time.monotonic() >= deadline:
                    raise ClientError(
                        f"{place[0]}, partition {place[1]}: which keys wait there could not be read within "
                        f"{REQUEST_SECONDS:g} s; it is tried again"
                    )
        finally:
            raw.close()
        return keys

    # Handing out

    def _due_ms(self, raw: "RawMessage") -> int:
        tries = self._tries.get(where(raw))
        if tries is not None and tries["offset"] == raw.offset():
            return int(tries["due"])
        return super()._due_ms(raw)

    def gate(self, reader: "Reader", raw: "RawMessage") -> bool:
        """A message whose key waits goes to wait behind it."""
        topic, partition = where(raw)
        if topic in self._sources:
            return False
        key = raw.key()
        waiting = self._waiting.get((topic, partition))
        if not waiting or key not in waiting:
            return False
        if any(passing.key == key for passing in self._under_way):
            # Should the one before be refused, this one must not be there first.
            self.settle()
        message = Message(raw, None)
        try:
            self._wait_behind(message, retry_headers.parked(message.headers, message.origin, now_ms()))
        except ClientError as error:  # it will be sent again; the loop says what was wrong
            reader.fail(error)
        return True

    def _wait_behind(self, message: Message, headers: list[tuple[str, Any]]) -> None:
        """`message` is of the source; its retry partition has the same number."""
        place = (message.topic, message.partition)
        if message.key is not None:
            self._waiting.setdefault(place, Counter())[message.key] += 1
        self._forward(message, retry_topic(message.topic, self._group), headers, lambda: place[1])

    # What became of a body

    def succeeded(self, reader: "Reader", message: Message) -> None:
        if message.topic in self._sources:
            self._done(reader, message)

    def failed(self, reader: "Reader", message: Message, error: Exception) -> None:
        failures = self.attempt(message)
        place = (message.topic, message.partition)
        if failures >= self._policy.attempts:
            self._give_up(message, error)
            if message.topic in self._sources:
                self._done(reader, message)
            return
        wait_seconds = self._policy.wait_seconds(failures)
        due = now_ms() + round(wait_seconds * 1000)
        count, told = self._earlier(message)
        if message.topic not in self._sources:
            headers = retry_headers.with_failure(
                message.headers, message.origin, self._reason(error), now_ms(), due, (count, told)
            )
            self._wait_behind(message, headers)
            return
        told = [*told, {"at": now_ms(), "error": retry_headers.one_line(self._reason(error))}]
        tries: _Tries = {"offset": message.offset, "failures": failures, "due": due}
        self._tries[place] = {**tries, "history": told}
        text = json.dumps({**tries, "history": told[-_HISTORY_KEPT:]}, ensure_ascii=False)
        reader.commits.note(place, message.offset, text)
        reader.try_again(place, message.offset, wait_seconds)

    def _earlier(self, message: Message) -> retry_headers.Failures:
        """In its headers until it fails in place, from then on in the tries."""
        tries = self._tries.get((message.topic, message.partition))
        if tries is not None and tries["offset"] == message.offset:
            return int(tries["failures"]), list(tries["history"])
        return super()._earlier(message)

    def _done(self, reader: "Reader", message: Message) -> None:
        """One message fewer of its key waits."""
        place = (message.topic, message.partition)
        self._tries.pop(place, None)
        reader.window.unpin(place)
        waiting = self._waiting.get((self._sources[message.topic], message.partition))
        if waiting is not None and message.key is not None and message.key in waiting:
            waiting[message.key] -= 1
            if waiting[message.key] <= 0:
                del waiting[message.key]


def _tries_of(committed: TopicPartition) -> _Tries | None:
    """What an earlier owner noted with its commit."""
    try:
        found = json.loads(committed.metadata or "null")
        tries = {name: int(found[name]) for name in ("offset", "failures", "due")}
    except (ValueError, TypeError, KeyError):
        return None
    if tries["offset"] != committed.offset:
        return None
    history = found.get("history")
    return {**tries, "history": history if isinstance(history, list) else []}
