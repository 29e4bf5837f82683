"""What lies in dead-letter topics, and sending it back to where it came from.

How far a dead-letter topic has been replayed is committed under a group of its own, `<topic>.<group>.dlq.replay`: a
replay that is interrupted goes on where it was, and nothing is deleted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.client import retry_headers
from penstock.client.admin import Admin
from penstock.client.consumer import Consumer
from penstock.client.errors import ClientError
from penstock.client.message import Message
from penstock.client.producer import Producer
from penstock.client.retry import dead_letter_topic

_SUFFIX = ".dlq"
_UNACKNOWLEDGED_MAX = 500
# Another replay may have taken the rest: looked at so often.
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """One dead-letter topic."""

    name: str
    topic: str
    group: str
    waiting: int  # not replayed yet
    replayed: int


class DeadLetterBox:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = Admin(bootstrap)

    def all(self) -> list[DeadLetters]:
        """Every dead-letter topic of the cluster."""
        names = [topic.name for topic in self._admin.topics()]
        known = set(names)
        found = []
        for name in names:
            split = _split(name, known)
            if split is not None:
                found.append(self._counted(name, *split))
        return found

    def _counted(self, name: str, topic: str, group: str) -> DeadLetters:
        committed = self._admin.committed(_replay_group(name))
        waiting = replayed = 0
        for partition in self._admin.describe(name).partitions:
            first, end = partition.earliest or 0, partition.latest or 0
            at = min(max(committed.get((name, partition.index), first), first), end)
            waiting += end - at
            replayed += at - first
        return DeadLetters(name, topic, group, waiting, replayed)

    def messages(self, topic: str, group: str, *, most: int | None = None) -> Iterator[Message]:
        """Those that were not replayed yet, partition by partition in order."""
        name = self._existing(topic, group)
        ends = self._left(name)
        left = sum(end - at for at, end in ends.values())
        left = left if most is None else min(left, most)
        if not left:
            return
        start = {index: at for index, (at, _) in ends.items()}
        with Consumer(self._bootstrap, name, start=start) as consumer:
            while left:
                message = consumer.receive()
                if message is None:
                    return
                if message.offset < ends[message.partition][1]:
                    left -= 1
                    yield message

    def replay(self, topic: str, group: str, *, most: int | None = None) -> int:
        """Send them back to their topic as they were first sent. Gives how many.

        Not more than there were at first: those that fail again meanwhile are for another replay. Several may run at
        once; they share the partitions.
        """
        name = self._existing(topic, group)
        left = self._waiting(name)
        left = left if most is None else min(left, most)
        done = 0
        if not left:
            return 0
        with (
            Producer(self._bootstrap) as producer,
            Consumer(self._bootstrap, name, group=_replay_group(name)) as consumer,
        ):
            while done < left:
                batch = consumer.receive_many(min(_UNACKNOWLEDGED_MAX, left - done), timeout=_LOOK_SECONDS)
                if not batch:
                    consumer.commit()
                    if consumer.stopped or not self._waiting(name):
                        break
                    continue
                # Acknowledged first; asking for more commits. What raises leaves the whole batch to be replayed.
                deliveries = [
                    producer.pass_on(
                        topic,
                        message.raw_value,
                        message.key,
                        -1,
                        list(retry_headers.without_ours(message.headers)),
                    )
                    for message in batch
                ]
                for delivery in deliveries:
                    delivery.result()
                done += len(batch)
        return done

    def _waiting(self, name: str) -> int:
        return sum(end - at for at, end in self._left(name).values())

    def _left(self, name: str) -> dict[int, tuple[int, int]]:
        """From where to where, in each partition."""
        committed = self._admin.committed(_replay_group(name))
        return {
            one.index: (
                min(max(committed.get((name, one.index), 0), one.earliest or 0), one.latest or 0),
                one.latest or 0,
            )
            for one in self._admin.describe(name).partitions
        }

    def _existing(self, topic: str, group: str) -> str:
        name = dead_letter_topic(topic, group)
        if name not in {one.name for one in self._admin.topics()}:
            raise ClientError(
                f"there are no dead letters of {topic} for group {group}: `penstock dlq list` shows what there is"
            )
        return name


def _replay_group(name: str) -> str:
    return f"{name}.replay"


def _split(name: str, known: set[str]) -> tuple[str, str] | None:
    """Topic and group of a dead-letter topic: the longest beginning that is a topic. Names may hold dots."""
    if not name.endswith(_SUFFIX):
        return None
    parts = name.removesuffix(_SUFFIX).split(".")
    for end in range(len(parts) - 1, 0, -1):
        topic = ".".join(parts[:end])
        if topic in known:
            return topic, ".".join(parts[end:])
    return None
