"""End-to-end encryption (SPEC M10) with the real cipher and a real broker: the queue stores what it cannot read."""

import os
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import Message as PlainMessage
from confluent_kafka import Producer as PlainProducer
from confluent_kafka import TopicPartition
from tests.integration.commands import penstock
from tests.integration.sdk.conftest import Cluster

from penstock import Consumer, Encryption, Message, Producer, Retry, StaticKeys
from penstock.client.encryption import KEY_HEADER, EncryptionError, UnknownKeyError

NewTopic = Callable[[int], str]
JANUARY, FEBRUARY = os.urandom(32), os.urandom(32)
SECRET = "4111 1111 1111 1111"


def sealed_with(**keys: bytes) -> Encryption:
    return Encryption(StaticKeys(keys))


def plain_messages(cluster: Cluster, topic: str, count: int) -> list[PlainMessage]:
    """As a client sees them that knows nothing of Penstock."""
    consumer = PlainConsumer({"bootstrap.servers": cluster.bootstrap, "group.id": "plain"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found: list[PlainMessage] = []
        while len(found) < count:
            found += [
                message for message in consumer.consume(count - len(found), 1.0) if message.error() is None
            ]
        return found
    finally:
        consumer.close()


def received(consumer: Consumer, count: int) -> list[Message]:
    found = [consumer.receive() for _ in range(count)]
    return [message for message in found if message is not None]


def test_others_see_keys_tags_and_labels_but_no_value(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    value = {"card": SECRET}
    with Producer(cluster.bootstrap, encryption=sealed_with(january=JANUARY)) as producer:
        for _ in range(2):
            producer.send(
                topic,
                value,
                key="customer-1",
                tags=["checkout"],
                labels={"country": "de"},
                headers={"trace": "1"},
            ).result()
        producer.send(topic, None, key="customer-1").result()
    first, second, tombstone = plain_messages(cluster, topic, 3)
    for message in (first, second):
        stored = message.value()
        assert isinstance(stored, bytes)
        assert not any(part.encode() in stored for part in ("card", SECRET, SECRET[:8]))
        headers = dict(message.headers() or [])
        assert message.key() == b"customer-1"
        assert (headers["tags"], headers["trace"]) == (b"checkout,country=de", b"1")
        assert headers[KEY_HEADER] == b"january"
    assert first.value() != second.value(), "equal values do not look equal"
    assert tombstone.value() is None, "compaction must still see what was deleted"
    with Consumer(cluster.bootstrap, topic) as consumer:  # without the keys
        message = received(consumer, 1)[0]
        assert (message.tags, message.labels, message.key) == (
            ("checkout",),
            {"country": "de"},
            b"customer-1",
        )
        assert message.value == first.value()
    with Consumer(
        cluster.bootstrap, topic, encryption=sealed_with(january=JANUARY), deserializer="json"
    ) as consumer:
        assert [incoming.value for incoming in received(consumer, 3)] == [value, value, None]


def test_keys_are_rotated_without_a_break(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    with Producer(cluster.bootstrap, encryption=sealed_with(january=JANUARY)) as producer:
        producer.send(topic, "old").result()
    with Producer(cluster.bootstrap, encryption=sealed_with(january=JANUARY, february=FEBRUARY)) as producer:
        producer.send(topic, "new").result()
    ids = [dict(message.headers() or [])[KEY_HEADER] for message in plain_messages(cluster, topic, 2)]
    assert ids == [b"january", b"february"]
    both = sealed_with(january=JANUARY, february=FEBRUARY)
    with Consumer(cluster.bootstrap, topic, encryption=both) as consumer:
        assert [message.value for message in received(consumer, 2)] == [b"old", b"new"]
    with Consumer(cluster.bootstrap, topic, encryption=sealed_with(january=JANUARY)) as consumer:
        old, new = received(consumer, 2)
        assert old.value == b"old"
        with pytest.raises(UnknownKeyError, match=f"a message of {topic} is sealed with key 'february'"):
            _ = new.value


def test_a_wrong_key_a_changed_value_and_another_topic_are_told_apart_from_success(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    topic, elsewhere = new_topic(1), new_topic(1)
    with Producer(cluster.bootstrap, encryption=sealed_with(january=JANUARY)) as producer:
        producer.send(topic, SECRET, key="k").result()
    with Consumer(cluster.bootstrap, topic, encryption=sealed_with(january=FEBRUARY)) as consumer:
        (message,) = received(consumer, 1)
        with pytest.raises(EncryptionError, match="does not open with key 'january': another key of that id"):
            _ = message.value
    (stored,) = plain_messages(cluster, topic, 1)
    sealed = stored.value()
    assert isinstance(sealed, bytes)
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    forger = PlainProducer({"bootstrap.servers": cluster.bootstrap})
    forger.produce(elsewhere, sealed, key=b"k", headers=stored.headers())
    forger.produce(topic, changed, key=b"k", headers=stored.headers())
    forger.produce(topic, sealed, key=b"other", headers=stored.headers())
    forger.produce(topic, b"in the clear", key=b"k")
    assert forger.flush(60) == 0
    strict = Encryption(StaticKeys({"january": JANUARY}))
    with Consumer(cluster.bootstrap, elsewhere, encryption=strict) as consumer:
        moved = received(consumer, 1)
    with Consumer(cluster.bootstrap, topic, encryption=strict) as consumer:
        good, *bad = received(consumer, 4)
    assert good.value == SECRET.encode()
    for message in moved + bad:
        with pytest.raises(EncryptionError):
            _ = message.value


def test_what_does_not_open_becomes_a_dead_letter_and_opens_when_the_key_is_there(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    """Sealed values stay sealed in retry and dead-letter topics, and open there for those who have the key."""
    topic = new_topic(1)
    for keys, value in ((sealed_with(january=JANUARY), "one"), (sealed_with(february=FEBRUARY), "two")):
        with Producer(cluster.bootstrap, encryption=keys) as producer:
            producer.send(topic, value, key="k").result()
    done: list[tuple[bytes, int]] = []
    retry = Retry(attempts=2, backoff="50ms")
    with Consumer(
        cluster.bootstrap, topic, group=f"{topic}-g", encryption=sealed_with(january=JANUARY), retry=retry
    ) as consumer:

        def handle(message: Message) -> None:
            try:
                value = message.value
            except EncryptionError:
                if message.attempt == 2:
                    consumer.stop()
                raise
            if message.attempt == 1:
                raise RuntimeError("later")  # opens in the retry topic, too
            done.append((value, message.attempt))

        consumer.run(handle)
    dead = f"{topic}.{topic}-g.dlq"
    (letter,) = plain_messages(cluster, dead, 1)
    assert b"two" not in (letter.value() or b"")
    with Consumer(cluster.bootstrap, dead, encryption=sealed_with(february=FEBRUARY)) as consumer:
        assert [message.value for message in received(consumer, 1)] == [b"two"]
    replayed = penstock("dlq", "replay", topic, "--group", f"{topic}-g", bootstrap=cluster.bootstrap)
    assert replayed.code == 0, replayed.err
    both = sealed_with(january=JANUARY, february=FEBRUARY)
    with Consumer(cluster.bootstrap, topic, group=f"{topic}-g", encryption=both) as consumer:
        assert [incoming.value for incoming in received(consumer, 1)] == [b"two"]
    assert done == [(b"one", 2)]
