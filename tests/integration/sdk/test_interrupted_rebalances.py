"""Ctrl-C inside a rebalance callback, with the real librdkafka: it assigns all the same, and the SDK goes by that.

Every moment of it is gone through in `tests/unit/client/test_interrupted_rebalances.py`, over a model.
"""

from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.raw import wait_until
from tests.integration.sdk.conftest import Cluster

from penstock import Consumer, Producer
from penstock.client.consuming.membership import Membership
from penstock.client.profiles import Delivery

NewTopic = Callable[[int], str]
TOTAL = 10


def interrupt(monkeypatch: pytest.MonkeyPatch, callback: str, *, done: bool) -> None:
    """Once: when it has done its work, or before."""
    honest: Callable[..., None] = getattr(Membership, callback)
    left = [KeyboardInterrupt]

    def interrupted(*args: Any) -> None:
        if done or not left:
            honest(*args)
        if left:
            raise left.pop()

    monkeypatch.setattr(Membership, callback, interrupted)


def ask(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        message = consumer.receive(20)
        assert message is not None
        found.append(int(message.value))
    return found


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("done", [False, True])
def test_who_goes_on_reads_what_was_assigned_and_leaves_what_was_revoked(
    cluster: Cluster, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch, delivery: Delivery, done: bool
) -> None:
    topic = new_topic(2)
    with Producer(cluster.bootstrap) as producer:
        for number in range(TOTAL):
            producer.send(topic, b"%d" % number, partition=number % 2)
    interrupt(monkeypatch, "_on_assign", done=done)
    interrupt(monkeypatch, "_on_revoke", done=done)
    consumer = Consumer(cluster.bootstrap, topic, group=topic, delivery=delivery, stop_on=())
    with pytest.raises(KeyboardInterrupt):
        consumer.receive(20)
    assert sorted(ask(consumer, TOTAL)) == list(range(TOTAL))
    assert consumer.assignment == [(topic, 0), (topic, 1)]

    interruptions = []
    other = Consumer(cluster.bootstrap, topic, group=topic, delivery=delivery, stop_on=())

    def shared() -> bool:
        try:
            assert consumer.receive(0.1) is None
        except KeyboardInterrupt:
            interruptions.append(1)
            return False
        # At-least-once, a revocation that was interrupted has committed nothing: some come again.
        assert other.receive(0.1) is None or delivery == "at-least-once"
        return len(consumer.assignment) == len(other.assignment) == 1

    wait_until(shared, "a partition for each")
    assert interruptions
    consumer.close()
    other.close()
