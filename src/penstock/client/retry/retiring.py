"""Ordered retries while partitions of the source are retired (ADR 11).

What producers write to a retired partition is read in one that stays. There, a key must not overtake what was written
before under it: that is in the retired partition still, or waits in the retry partition beside it. So those that stay
are not read until the group has worked off both. Once the source shows fewer partitions, the retry topic is to have
as many: what waits in the others is read to its end, and then they are retired, too.

What was read there is deleted, for else they would stay for ever. Each member deletes what it owns and has nothing left
to do with: at-most-once commits come before the work, and say nothing to the others. And a partition in which messages
of another group lie is left as it is: names may hold dots, and that group may still wait for them.
"""

import logging
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from penstock.client.admin.admin import Admin
from penstock.client.admin.topics import RETIRE_TO
from penstock.client.connect import REQUEST_SECONDS
from penstock.client.consuming.reader_errors import UNKNOWN
from penstock.client.consuming.starting import told
from penstock.client.consuming.unfinished import Where
from penstock.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Consumer as RawConsumer

    from penstock.client.consuming.reader import Reader

logger = logging.getLogger("penstock.client")

# A retirement is noticed after so long, and so is the end of what it waits for.
_LOOK_SECONDS = 1.0


class Retiring:
    def __init__(self, bootstrap: str, retries: dict[str, str], has_foreign: Callable[[Where], bool]) -> None:
        """`retries`: the source of each retry topic; `has_foreign`: whether messages of others lie in a partition."""
        self._admin = Admin(bootstrap)
        self._retries = retries
        self._has_foreign = has_foreign
        self._shared: set[Where] = set()  # where messages of others were found
        self._known: dict[str, int | None] = {}  # how many partitions of each source are to stay
        self._barred: dict[
            str, set[Where]
        ] = {}  # what was not to be read of each source when it was looked at last
        self._under_way = False
        self._look_at = 0.0

    def look_due(self, *, urgent: bool) -> bool:
        """Whether something may have changed that nobody is told of. While keys wait it is urgent to know."""
        now = time.monotonic()
        if now < self._look_at and not urgent:
            return False
        self._look_at = now + _LOOK_SECONDS
        before = dict(self._known)
        with suppress(ClientError):  # it is asked again
            self._known = self._all_staying()
        return self._under_way or self._known != before

    def _staying(self, topic: str) -> int | None:
        wanted = self._admin.settings_of_topic(topic).get(RETIRE_TO, "None")
        return int(wanted) if wanted.isdecimal() else None

    def waiting(self, reader: "Reader") -> set[Where]:
        """The source partitions that are not to be read yet."""
        self._known = self._all_staying()
        self._under_way = False
        owned = {topic for topic, _ in reader.owned}
        for retry, source in self._retries.items():
            found: set[Where] | None = None
            if source in self._known:
                with unless_deleted():
                    found = self._waiting(reader, source, retry)
            if found is not None:
                self._barred[source] = found
            elif source in owned:
                # The broker that was asked may only not have heard of it (any more, or yet): nothing is let go on its
                # word. One that is deleted is taken away.
                self._under_way = True
            else:
                self._barred.pop(source, None)
        return {place for places in self._barred.values() for place in places}

    def _all_staying(self) -> dict[str, int | None]:
        """Of the sources that there are."""
        known = {}
        for source in self._retries.values():
            with unless_deleted():
                known[source] = self._staying(source)
        return known

    def _waiting(self, reader: "Reader", source: str, retry: str) -> set[Where]:
        shown = {name: len(self._admin.partition_indexes(name)) for name in (source, retry)}
        staying = min(self._known[source] or shown[source], shown[source])
        if max(shown.values()) <= staying:
            return set()
        self._under_way = True
        places = [(name, index) for name in (source, retry) for index in range(staying, shown[name])]
        ends = _ends(reader.raw, places)
        unfinished = reader.ahead.not_handed_out(reader.intake)
        busy = {
            place[1]
            for place, (position, end) in ends.items()
            if min(position, unfinished.get(place, position)) < end
        }
        if not busy and shown[source] == staying:
            owned = {index: end for (_, index), (_, end) in ends.items() if (retry, index) in reader.owned}
            self._retire(source, retry, staying, owned)
        return {(source, target) for index in busy for target in _targets(index, staying)}

    def _retire(self, source: str, retry: str, staying: int, ends: dict[int, int]) -> None:
        """Nothing is left to be read there, and nothing new comes."""
        new = {(retry, index) for index in ends} - self._shared
        shared = {place for place in new if self._has_foreign(place)}
        if shared:
            self._shared |= shared
            logger.warning(
                "%s has %d partitions and %s more: messages of another group that wait there are kept, and so are the "
                "partitions. Choose a group whose name has no dot, so that its retry topic is its own",
                source,
                staying,
                retry,
            )
        if any(place[0] == retry for place in self._shared):
            return
        try:
            if self._staying(retry) != staying:
                self._admin.retire_partitions(retry, staying)
            if ends:
                self._admin.delete_records(retry, ends)
        except ClientError as error:
            raise ClientError(
                f"{source} has {staying} partitions and {retry} has more: with ordered_by_key they must have the same "
                f"number, and the others could not be retired: {error}"
            ) from error


@contextmanager
def unless_deleted() -> "Iterator[None]":
    """A topic that is not there any more keeps nobody from reading the others."""
    try:
        yield
    except ClientError as error:
        if error.code not in UNKNOWN:
            raise


def _ends(raw: "RawConsumer", places: list[Where]) -> dict[Where, tuple[int, int]]:
    """Where the group stands in each, and where it ends."""
    found = {}
    for partition in told(
        raw.committed([TopicPartition(*place) for place in places], timeout=REQUEST_SECONDS)
    ):
        at = TopicPartition(partition.topic, partition.partition)
        first, end = raw.get_watermark_offsets(at, timeout=REQUEST_SECONDS)
        found[partition.topic, partition.partition] = (max(partition.offset, first), end)
    return found


def _targets(index: int, staying: int) -> set[int]:
    """Where records of a retired partition may be read now: `p mod n` of the n at that time, and of later ones."""
    found: set[int] = set()
    left = {index}
    while left:
        into = {partition % count for partition in left for count in range(staying, partition + 1)}
        found |= {partition for partition in into if partition < staying}
        left = {partition for partition in into if partition >= staying}
    return found
