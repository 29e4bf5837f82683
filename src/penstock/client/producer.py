"""The producer: serialises, picks the partition, batches, and says where each message went."""

import itertools
import secrets
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Self

from confluent_kafka import KafkaException
from confluent_kafka import Producer as RawProducer

from penstock.client import tags as tag_header
from penstock.client.connect import REQUEST_SECONDS, handle_settings, reach
from penstock.client.delivery import Delivery, DeliveryBatch
from penstock.client.encryption import KEY_HEADER, Encryption
from penstock.client.errors import ClientError, ClosedError, explained, kafka_errors
from penstock.client.polling import Pump
from penstock.client.profiles import Delivery as DeliverySemantics
from penstock.client.profiles import Profile, producer_settings
from penstock.client.serializers import Key, Serializer, encode_key, serializer_for

Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]
Partitioner = Callable[[str, bytes | None, int], int]

ID_HEADER = "penstock-id"
_ANY_PARTITION = -1
_NOW = 0
# Reports are swept up after so many messages: rarely enough to cost nothing, often enough to keep few.
_SWEEP_MASK = 0xFF
_PARTITIONS_KNOWN_SECONDS = 30.0


# What produce() of librdkafka's binding raises; the last two for what it cannot encode.
_REFUSALS = (BufferError, KafkaException, RuntimeError, TypeError, ValueError)


class BufferFullError(ClientError):
    """As many messages are under way as the producer may hold."""


class Producer:
    """Sends messages to topics.

        with Producer("127.0.0.1:9092") as producer:
            producer.send("orders", {"item": 7}, key="customer-1", tags=["checkout"])

    `delivery` says what may happen when something fails: "at-least-once" (the default) waits for all in-sync
    replicas and tries again until it is answered; "at-most-once" sends and asks nobody. `profile` says what to favour
    while nothing fails: "latency" sends at once, "balanced" gathers for 5 ms, "throughput" for 50 ms.

    `partitioner` is a function `(topic, key, partitions) -> partition`; without one, a key goes where every Kafka
    client's murmur2 puts it, and messages without a key are spread. `serializer` turns values into bytes (see
    `serializers`). `config` sets anything librdkafka knows, over all of this.

    Buffers are bounded: when they are full, `send` waits until there is room. One producer may be shared by threads.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        delivery: DeliverySemantics = "at-least-once",
        profile: Profile = "balanced",
        partitioner: Partitioner | None = None,
        serializer: Serializer = "auto",
        encryption: Encryption | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        settings = producer_settings(delivery, profile, config)
        self._serialize = serializer_for(serializer)
        reach(bootstrap)
        self._bootstrap = bootstrap
        with kafka_errors(bootstrap, "the producer's config"):
            self._raw = RawProducer(handle_settings(bootstrap, debug=False, **settings))
        acknowledged = str(settings.get("acks", settings.get("request.required.acks"))) != "0"
        self._pump = Pump(self._raw, bootstrap, acknowledged=acknowledged)
        self._partitioner = partitioner
        self._partitions: dict[str, tuple[int, float]] = {}
        self._encryption = encryption
        # 72 random bits tell producers apart, the number tells their messages apart: no random draw per message.
        self._id_prefix = secrets.token_urlsafe(9) + "-"
        self._numbers = itertools.count(1)
        self._closed = False
        self._pump.start()
        # What a script forgot to flush is flushed when it ends.
        self._at_end = weakref.finalize(self, _finish, self._pump)

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Key = None,
        tags: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        headers: Headers | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
        wait_for_room: bool = True,
    ) -> Delivery:
        """Hand over one message. The returned delivery's `result()` says where it went; `await` works as well.

        Every message gets a unique id, in the header `penstock-id`. `timestamp` is a datetime or epoch milliseconds.
        With `wait_for_room=False`, full buffers raise `BufferFullError` instead.
        """
        number = next(self._numbers)
        id_ = f"{self._id_prefix}{number:x}"
        out: list[tuple[str, str | bytes | None]] = [(ID_HEADER, id_)]
        if tags or labels:
            out.append((tag_header.HEADER, tag_header.encode(tags, labels)))
        if headers:
            out += self._given(headers)
        raw_key = encode_key(key)
        data = None if value is None else self._serialize(value)
        if self._encryption is not None and data is not None:
            data, key_header = self._encryption.seal(topic, raw_key, data)
            out.append(key_header)
        if partition is None:
            partition = _ANY_PARTITION if self._partitioner is None else self._choose(topic, raw_key)
        at = _NOW if timestamp is None else _epoch_ms(timestamp)
        delivery = Delivery(self._pump, topic, id_)
        try:
            self._raw.produce(
                topic,
                data,
                raw_key,
                partition,
                on_delivery=delivery._delivered,  # noqa: SLF001 - the report's way in
                timestamp=at,
                headers=out,
            )
        except _REFUSALS as error:
            if isinstance(error, BufferError) and not wait_for_room:
                self._pump.sweep()
                raise BufferFullError(
                    f"too many messages to {topic} are under way: wait and send it again"
                ) from error
            self._again(error, topic, data, raw_key, partition, delivery._delivered, at, out)  # noqa: SLF001
        pump = self._pump
        pump.sends = number
        if pump.asleep:
            pump.wake()
        if not number & _SWEEP_MASK:
            pump.sweep()
        return delivery

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Key] | None = None,
        tags: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        headers: Headers | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
    ) -> DeliveryBatch:
        """Hand over many messages that share tags, labels and headers; `keys` go with the values one by one.

        The quickest way in: one delivery stands for all of them.
        """
        batch = DeliveryBatch(self._pump, topic)
        shared: list[tuple[str, str | bytes | None]] = []
        if tags or labels:
            shared.append((tag_header.HEADER, tag_header.encode(tags, labels)))
        if headers:
            shared += self._given(headers)
        at = _NOW if timestamp is None else _epoch_ms(timestamp)
        pairs: Iterable[tuple[Any, Key]] = (
            zip(values, itertools.repeat(None)) if keys is None else zip(values, keys, strict=True)
        )
        produce, serialize, prefix, numbers = (
            self._raw.produce,
            self._serialize,
            self._id_prefix,
            self._numbers,
        )
        report = batch._delivered  # noqa: SLF001 - the report's way in
        plain = self._encryption is None and self._partitioner is None
        chosen = _ANY_PARTITION if partition is None else partition
        pump = self._pump
        for value, key in pairs:
            number = next(numbers)
            out = [(ID_HEADER, f"{prefix}{number:x}"), *shared]
            raw_key = None if key is None else encode_key(key)
            data = value if type(value) is bytes and serialize is _AUTO else self._data(value)
            if not plain:
                data, chosen = self._prepared(topic, raw_key, data, partition, out)
            batch.total += 1
            try:
                produce(topic, data, raw_key, chosen, on_delivery=report, timestamp=at, headers=out)
            except _REFUSALS as error:
                batch.total -= 1
                self._again(error, topic, data, raw_key, chosen, report, at, out)
                batch.total += 1
            if not number & _SWEEP_MASK:
                pump.sends = number
                pump.sweep()
        pump.sends = -1
        pump.wake()
        return batch

    def _given(self, headers: Headers) -> Iterable[tuple[str, str | bytes | None]]:
        """Without what says which message it is and what it was sealed with: who passes on the headers of another
        message passes on these, too, and the last of a name counts."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        own = (ID_HEADER,) if self._encryption is None else (ID_HEADER, KEY_HEADER)
        return [pair for pair in pairs if pair[0] not in own]

    def _data(self, value: Any) -> bytes | None:
        return None if value is None else self._serialize(value)

    def _prepared(
        self,
        topic: str,
        key: bytes | None,
        data: bytes | None,
        partition: int | None,
        headers: list[tuple[str, str | bytes | None]],
    ) -> tuple[bytes | None, int]:
        if self._encryption is not None and data is not None:
            data, key_header = self._encryption.seal(topic, key, data)
            headers.append(key_header)
        if partition is None:
            partition = _ANY_PARTITION if self._partitioner is None else self._choose(topic, key)
        return data, partition

    def pass_on(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: list[tuple[str, Any]],
        timestamp: int = _NOW,
    ) -> Delivery:
        """A message as it is, nothing added: for messages that are passed on."""
        delivery = Delivery(self._pump, topic, "")
        report = delivery._delivered  # noqa: SLF001 - the report's way in
        try:
            self._raw.produce(
                topic, value, key, partition, on_delivery=report, timestamp=timestamp, headers=headers
            )
        except _REFUSALS as error:
            self._again(error, topic, value, key, partition, report, timestamp, headers)
        self._pump.wake()
        return delivery

    def _again(
        self,
        error: Exception,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        report: Callable[..., None],
        timestamp: int,
        headers: list[tuple[str, Any]],
    ) -> None:
        """The buffers are full: wait for room, which comes at the latest when messages are given up."""
        while isinstance(error, BufferError):
            self._pump.wait_a_little()
            try:
                self._raw.produce(
                    topic, value, key, partition, on_delivery=report, timestamp=timestamp, headers=headers
                )
            except _REFUSALS as again:
                error = again
            else:
                return
        if isinstance(error, KafkaException):
            raise explained(error, bootstrap=self._bootstrap, subject=topic) from error
        if self._closed:
            raise ClosedError("this producer is closed: make another one") from error
        raise ClientError(f"a message to {topic!r} cannot be sent: {error}") from error

    def _choose(self, topic: str, key: bytes | None) -> int:
        count = self.partitions(topic)
        assert self._partitioner is not None
        chosen = self._partitioner(topic, key, count)
        if not 0 <= chosen < count:
            raise ClientError(f"the partitioner chose partition {chosen}: {topic} has 0 to {count - 1}")
        return chosen

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; asked again from time to time, since topics grow."""
        count, asked_at = self._partitions.get(topic, (0, 0.0))
        now = time.monotonic()
        if not count or now - asked_at > _PARTITIONS_KNOWN_SECONDS:
            with kafka_errors(self._bootstrap, topic):
                found = self._raw.list_topics(topic, timeout=REQUEST_SECONDS).topics[topic]
            if found.error is not None:
                raise explained(found.error, bootstrap=self._bootstrap, subject=topic)
            count = len(found.partitions)
            self._partitions[topic] = (count, now)
        return count

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is acknowledged.

        Raises `ClientError` for messages that failed since the last flush, unless somebody asked their delivery.
        """
        self._pump.flush(timeout)

    def close(self) -> None:
        """Flush and let go; closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._pump.flush(None)
        except ClientError:
            raise  # everything has ended; this is how
        except BaseException:
            self._pump.finish(_LAST_FLUSH_SECONDS)  # Ctrl-C means soon; a second one means now
            raise
        finally:
            self._at_end.detach()
            self._pump.stop()
            self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_AUTO = serializer_for("auto")
_LAST_FLUSH_SECONDS = 30.0


def _epoch_ms(when: int | datetime) -> int:
    if isinstance(when, datetime):
        return round(when.timestamp() * 1000)
    if isinstance(when, int):
        return when
    raise ClientError(f"timestamp={when!r} is neither a datetime nor epoch milliseconds")


def _finish(pump: Pump) -> None:
    """For a producer that nobody closed: send what is left; there is nobody to tell about failures."""
    with suppress(ClientError):
        pump.flush(_LAST_FLUSH_SECONDS)
    pump.stop()
