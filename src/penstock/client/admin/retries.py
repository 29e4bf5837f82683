"""Messages that wait for a group's next try, seen from outside: how many there are, and when the next is due."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import TopicPartition

from penstock.client.admin.group_info import GroupInfo, Where
from penstock.client.admin.offsets import OffsetAdmin
from penstock.client.connect import handle_settings
from penstock.client.errors import kafka_errors
from penstock.client.retry import headers as retry_headers
from penstock.client.retry.notes import tries_of

# For the first message of each partition; what does not come in time is left out.
_LOOK_SECONDS = 5.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Retries:
    """Messages of one topic that failed, and wait."""

    topic: str  # that they were first sent to
    name: str  # the topic where they wait
    waiting: int
    due_ms: int | None  # when the next may be tried, epoch milliseconds; None: it does not say

    @property
    def due_seconds(self) -> float | None:
        """How long until then; negative: it has passed."""
        return None if self.due_ms is None else self.due_ms / 1000 - time.time()


class RetryAdmin(OffsetAdmin):
    """Groups, and what they try again."""

    def retries(self, group: str) -> list[Retries]:
        """What waits for the group's next try, by topic; nothing where nothing does."""
        return [retries for info in self.describe_groups([group]) for retries in self.retries_of(info)]

    def retries_of(self, info: GroupInfo) -> list[Retries]:
        """The same of a group that was looked at."""
        heads = {(offset.topic, offset.partition): offset.position for offset in info.waiting}
        dues = self._dues(info.name, heads)
        return [
            Retries(
                topic,
                name,
                sum(offset.lag for offset in info.waiting if offset.topic == name),
                min((due for place, due in dues.items() if place[0] == name), default=None),
            )
            for name, topic in info.retry_topics.items()
            if any(place[0] == name for place in heads)
        ]

    def _dues(self, group: str, heads: Mapping[Where, int]) -> dict[Where, int]:
        """When the first message of each partition is due: it is the first there to be."""
        if not heads:
            return {}
        dues = {}
        notes = self.notes(group)
        for place, raw_headers in self._first(heads).items():
            tries = tries_of(heads[place], notes.get(place))
            due = retry_headers.due_ms(raw_headers) if tries is None else tries["due"]
            if due is not None:
                dues[place] = due
        return dues

    def _first(self, heads: Mapping[Where, int]) -> dict[Where, retry_headers.Pairs]:
        """The headers of the first messages."""
        settings = {
            "group.id": "penstock-no-group",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
        }
        found: dict[Where, retry_headers.Pairs] = {}
        with kafka_errors(self._bootstrap, "the retry topics"):
            raw = RawConsumer(handle_settings(self._bootstrap, debug=False, **settings))
            try:
                raw.assign([TopicPartition(*place, offset) for place, offset in heads.items()])
                deadline = time.monotonic() + _LOOK_SECONDS
                while found.keys() != heads.keys() and time.monotonic() < deadline:
                    message = raw.poll(_POLL_SECONDS)
                    if message is None or message.error() is not None:
                        continue
                    place = (str(message.topic()), int(message.partition() or 0))
                    if place not in found:
                        found[place] = message.headers() or []  # type: ignore[assignment]
                        raw.pause([TopicPartition(*place)])
            finally:
                raw.close()
        return found
