"""Dead letters on their way back to the topic they came from.

A letter goes back into its partition, where the topic still has that, and with its timestamp, unless it is so old that
retention might take it before anybody has read it.
"""

import time
from dataclasses import dataclass, field

from penstock.client.admin.admin import Admin
from penstock.client.errors import ClientError
from penstock.client.message import Message
from penstock.client.producer import Producer
from penstock.client.retry import headers as retry_headers

_RETENTION, _AGE_MAX = "retention.ms", "message.timestamp.before.max.ms"
_FOR_EVER = -1
_ANY = -1  # partition
_NOW = 0


def oldest_kept_ms(admin: Admin, topic: str) -> int:
    """Messages older than that are sent as new ones: retention, or the limit of a timestamp's age, is near."""
    settings = admin.settings_of_topic(topic)
    ages = [int(settings.get(name, _FOR_EVER)) for name in (_RETENTION, _AGE_MAX)]
    limits = [age for age in ages if age != _FOR_EVER]
    return _now_ms() - min(limits) // 2 if limits else 0


@dataclass(slots=True)
class Sending:
    """What became of letters that were sent back: the first that was refused of each partition, and why."""

    refused: dict[int, int] = field(default_factory=dict)
    error: ClientError | None = None

    def refuse(self, letter: Message, error: ClientError) -> None:
        self.refused.setdefault(letter.partition, letter.offset)
        self.error = self.error or error

    def without_refused(self, batch: list[Message]) -> list[Message]:
        """Up to those: only an end can be marked."""
        return [
            message
            for message in batch
            if message.offset < self.refused.get(message.partition, message.offset + 1)
        ]

    def raise_refusal(self) -> None:
        if self.error is not None:
            raise self.error


def send_back(producer: Producer, topic: str, letters: list[Message], oldest_ms: int) -> Sending:
    sending = Sending()
    count = producer.partitions(topic) if letters else 0
    deliveries = []
    for letter in letters:
        origin, headers = letter.origin, letter.headers
        partition = origin.partition if origin.topic == topic and origin.partition < count else _ANY
        timestamp = retry_headers.timestamp(headers) or _NOW
        if not oldest_ms < timestamp <= _now_ms():
            timestamp = _NOW
        own = list(retry_headers.without_ours(headers))
        try:
            delivery = producer.pass_on(topic, letter.raw_value, letter.key, partition, own, timestamp)
        except ClientError as error:
            sending.refuse(letter, error)
        else:
            deliveries.append((letter, delivery))
    for letter, delivery in deliveries:
        refusal = delivery.exception()
        if refusal is not None:
            sending.refuse(letter, refusal)
    return sending


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
