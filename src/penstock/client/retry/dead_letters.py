"""What lies in dead-letter topics, and sending it back to where it came from.

How far a dead-letter topic has been replayed is committed under a group of its own, `<topic>/<group>.dlq.replay`: a
replay that is interrupted goes on where it was, and nothing is deleted. Commits of a group without members expire, dead
letters do not: so it is written down in `<topic>.<group>.dlq.replayed` as well, and the larger of the two counts. A
signal, or a letter that is refused, comes through when what was acknowledged is written down. A replay that is killed
between the two, or whose broker goes there, leaves letters that go back twice: up to a batch of them.

Names may hold dots: `orders` read by `eu.billing` and `orders.eu` read by `billing` have the same dead-letter topic. So
each letter belongs to the topic that it says it came from.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError

from penstock.client.admin.admin import Admin, Retries
from penstock.client.consuming.consumer import Consumer
from penstock.client.errors import ClientError, unreachable
from penstock.client.message import Message
from penstock.client.producer import Producer
from penstock.client.retry.policy import dead_letter_topic
from penstock.client.retry.replay_marks import ReplayMarks
from penstock.client.retry.sending_back import oldest_kept_ms, send_back
from penstock.client.undisturbed import Undisturbed

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
    retries: Retries | None = None  # what may still come


class DeadLetterBox:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = Admin(bootstrap)

    def all(self) -> list[DeadLetters]:
        """Every dead-letter topic of the cluster."""
        names = [topic.name for topic in self._admin.topics()]
        known = set(names)
        found = [letters for name in names for letters in self._counted(name, self._sources(name, known))]
        return [replace(letters, retries=self.retries(letters.topic, letters.group)) for letters in found]

    def _sources(self, name: str, known: set[str]) -> list[tuple[str, str]]:
        """Topic and group of a dead-letter topic: those that its name may mean and that are there. Where none is, the
        first letter says which was deleted."""
        found = _splits(name, known)
        if found:
            return found
        splits = dict(_splits(name))
        if not splits:
            return []
        origin = next((letter.origin.topic for letter in self._read(name, self._all_of(name))), None)
        return [(origin, splits[origin])] if origin in splits else []

    def _all_of(self, name: str) -> dict[int, tuple[int, int]]:
        partitions = self._admin.describe(name).partitions
        return {partition.index: (partition.earliest or 0, partition.latest or 0) for partition in partitions}

    def retries(self, topic: str, group: str) -> Retries | None:
        """What the group tries again of it; None: nothing."""
        return next((retry for retry in self._admin.retries(group) if retry.topic == topic), None)

    def _counted(self, name: str, splits: list[tuple[str, str]]) -> list[DeadLetters]:
        if len(splits) <= 1:
            return [self._counted_by_offsets(name, *split) for split in splits]
        letters = list(self._read(name, self._all_of(name)))
        found = []
        for topic, group in splits:
            left = self._left(name, topic, group)
            own = [letter for letter in letters if _is_of(letter, topic)]
            waiting = sum(letter.offset >= left[letter.partition][0] for letter in own)
            if own:
                found.append(DeadLetters(name, topic, group, waiting, len(own) - waiting))
        return found or [DeadLetters(name, *splits[0], 0, 0)]

    def _counted_by_offsets(self, name: str, topic: str, group: str) -> DeadLetters:
        waiting = replayed = 0
        left = self._left(name, topic, group)
        for partition in self._admin.describe(name).partitions:
            at, end = left[partition.index]
            waiting += end - at
            replayed += at - (partition.earliest or 0)
        return DeadLetters(name, topic, group, waiting, replayed)

    def messages(self, topic: str, group: str, *, most: int | None = None) -> Iterator[Message]:
        """Those that were not replayed yet, partition by partition in order."""
        name = self._existing(topic, group)
        own = (letter for letter in self._read(name, self._left(name, topic, group)) if _is_of(letter, topic))
        yield from islice(own, most)

    def _read(self, name: str, ends: dict[int, tuple[int, int]]) -> Iterator[Message]:
        """From where to where, in each partition."""
        left = sum(end - at for at, end in ends.values())
        if not left:
            return
        start = {index: at for index, (at, _) in ends.items()}
        gone = False

        def notice(error: KafkaError) -> None:
            nonlocal gone
            gone = gone or error.code() == KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001

        # Retention may take some of them meanwhile: it ends where the partitions do.
        told: dict[str, Any] = {"enable.partition.eof": True, "error_cb": notice}
        # A signal is for whoever wanted to know: half of the letters or marks must not be taken for all.
        with Consumer(self._bootstrap, name, start=start, config=told, stop_on=()) as consumer:
            while left:
                message = consumer.receive(_LOOK_SECONDS)
                if message is None:
                    if {index for _, index in consumer.at_end} >= ends.keys():
                        return
                    if gone:  # librdkafka would wait for ever, and nobody is told that anything is missing
                        raise unreachable(self._bootstrap)
                    continue
                gone = False
                if message.offset < ends.get(message.partition, (0, 0))[1]:
                    left -= 1
                    yield message

    def replay(self, topic: str, group: str, *, most: int | None = None) -> int:
        """Send them back to their topic as they were first sent. Gives how many.

        Not more than there were at first: those that fail again meanwhile are for another replay. Several may run at
        once; they share the partitions.
        """
        name = self._existing(topic, group)
        left = self._left(name, topic, group)
        begins, ends = ({index: both[at] for index, both in left.items()} for at in (0, 1))
        unfinished = _unfinished(left, ends)
        done, stopped, rebalances = 0, False, 0
        if not unfinished:
            return 0
        marks = self._marks(name, topic)
        marks.make()  # before anything is sent: what cannot be marked would be sent again each time
        oldest_ms = oldest_kept_ms(self._admin, topic)
        told = {"enable.partition.eof": True}  # the last offsets may have no letters
        replaying = _replay_group(topic, group)
        with (
            Producer(self._bootstrap) as producer,
            Consumer(self._bootstrap, name, group=replaying, start=begins, config=told) as consumer,
        ):
            while unfinished and done != most:
                wanted = _UNACKNOWLEDGED_MAX if most is None else min(_UNACKNOWLEDGED_MAX, most - done)
                batch = consumer.receive_many(wanted, timeout=_LOOK_SECONDS)
                if not batch:
                    stopped = consumer.stopped
                    if stopped:
                        break  # closed, and what was marked is committed
                    consumer.commit()
                    unfinished -= {index for _, index in consumer.at_end}
                    unfinished &= _unfinished(self._left(name, topic, group), ends)
                    continue
                if consumer.rebalances != rebalances:
                    # Another replay may have had them, and died before it could commit what it marked.
                    rebalances = consumer.rebalances
                    begins = {index: at for index, (at, _) in self._left(name, topic, group).items()}
                # Acknowledged first; asking for more commits.
                due = [letter for letter in batch if letter.offset < ends.get(letter.partition, 0)]
                # What was marked and not committed comes once more.
                own = [
                    message
                    for message in due
                    if message.offset >= begins[message.partition] and _is_of(message, topic)
                ]
                with Undisturbed():
                    sending = send_back(producer, topic, own, oldest_ms)
                    marks.write(producer, sending.without_refused(due))
                sending.raise_refusal()
                done += len(own)
                unfinished -= _leave_the_others(consumer, batch, ends)
        if stopped:
            raise ClientError(f"stopped: {done} dead letters of {topic} were replayed, the others still wait")
        return done

    def _left(self, name: str, topic: str, group: str) -> dict[int, tuple[int, int]]:
        """From where to where, in each partition."""
        committed = self._admin.committed(_replay_group(topic, group))
        before = self._replayed_before(name)
        marked = self._marks(name, topic).read()
        left = {}
        for index, (earliest, latest) in self._all_of(name).items():
            place = (name, index)
            at = max(committed.get(place, 0), before.get(place, 0), marked.get(index, 0), earliest)
            left[index] = (min(at, latest), latest)
        return left

    def _replayed_before(self, name: str) -> dict[tuple[str, int], int]:
        """By earlier versions, whose group did not say of which topic the letters were: it counts where there is but
        one."""
        found = self._admin.committed(f"{name}.replay")
        known = {topic.name for topic in self._admin.topics()} if found else set()
        return found if len(_splits(name, known)) <= 1 else {}

    def _marks(self, name: str, topic: str) -> ReplayMarks:
        return ReplayMarks(self._admin, self._read, name, topic)

    def _existing(self, topic: str, group: str) -> str:
        name = dead_letter_topic(topic, group)
        if name not in {topic_info.name for topic_info in self._admin.topics()}:
            raise ClientError(
                f"there are no dead letters of {topic} for group {group}: `penstock dlq list` shows what there is"
            )
        return name


def _unfinished(left: dict[int, tuple[int, int]], ends: dict[int, int]) -> set[int]:
    return {index for index, end in ends.items() if left.get(index, (end, end))[0] < end}


def _leave_the_others(consumer: Consumer, batch: list[Message], ends: dict[int, int]) -> set[int]:
    """Nothing behind the ends is read or committed. Gives the partitions that are through."""
    through = set()
    for index in sorted({letter.partition for letter in batch}):
        offsets = [letter.offset for letter in batch if letter.partition == index]
        end = ends.get(index, 0)
        behind = [offset for offset in offsets if offset >= end]
        if behind:
            consumer.seek(batch[0].topic, index, behind[0])
        if behind or offsets[-1] + 1 == end:
            consumer.pause(batch[0].topic, index)
            through.add(index)
    return through


def _is_of(letter: Message, topic: str) -> bool:
    """Also one that does not say where it came from."""
    return letter.origin.topic in (topic, letter.topic)


def _replay_group(topic: str, group: str) -> str:
    """No topic's name has a slash: it is nobody else's."""
    return f"{topic}/{group}.dlq.replay"


def _splits(name: str, known: Container[str] | None = None) -> list[tuple[str, str]]:
    """What may be topic and group of a dead-letter topic: beginnings that are topics, the longest first."""
    if not name.endswith(_SUFFIX):
        return []
    parts = name.removesuffix(_SUFFIX).split(".")
    splits = [(".".join(parts[:end]), ".".join(parts[end:])) for end in range(len(parts) - 1, 0, -1)]
    return [(topic, group) for topic, group in splits if known is None or topic in known]
