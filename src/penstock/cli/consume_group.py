"""`penstock consume --group`: as a member of the group, each message committed after it was printed."""

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from penstock.client.admin.admin import Admin
from penstock.client.console.row import ConsoleRow
from penstock.client.consuming.consumer import Consumer
from penstock.client.errors import unreachable

if TYPE_CHECKING:
    from penstock.cli.command import Session
    from penstock.client.consuming.starting import Start

_TAKEN_AT_ONCE = 1000
# Time for others to give up what a new member is to have.
_SETTLED_SECONDS = 5.0
_STRATEGIES = ("range", "roundrobin", "cooperative-sticky")


class GroupRows:
    """Asking for more rows says that those before were printed; so does `close`, unless an exception is on its way."""

    def __init__(
        self,
        session: "Session",
        topic: str,
        group: str,
        *,
        from_beginning: bool,
        since_ms: int | None,
        isolation: str,
        most: int | None,
        follow: bool,
    ) -> None:
        self._bootstrap = session.bootstrap
        self._follow = follow
        self._left = sys.maxsize if most is None else most
        self.broker_lost = False
        self._admin = admin = Admin(session.bootstrap, debug=session.debug)
        self._group = group
        self._empty_since: float | None = None  # there is nothing for this member
        indexes = admin.partition_indexes(topic)
        self._ends = admin.latest(topic, indexes, committed=isolation == "read_committed")
        self._passed: set[tuple[str, int]] = set()  # read up to the end they had when this began
        start: Start = "earliest" if from_beginning else "latest"
        if since_ms is not None:
            start = datetime.fromtimestamp(since_ms / 1000, UTC)
        self._consumer = Consumer(
            session.bootstrap,
            topic,
            group=group,
            start=start,
            batch_messages=_TAKEN_AT_ONCE,
            config={
                **_settings(admin, group),
                "enable.partition.eof": not follow,
                "isolation.level": isolation,
                "error_cb": self._noticed,
            },
        )

    def _noticed(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - librdkafka's public name for it
            self.broker_lost = True

    @property
    def done(self) -> bool:
        consumer = self._consumer
        if consumer.stopped:
            return True
        if self._follow or not consumer.joined:
            return False
        if not consumer.assignment:
            return self._has_no_share()
        self._empty_since = None
        return self._passed.union(consumer.at_end).issuperset(consumer.assignment)

    def _has_no_share(self) -> bool:
        """Others have it all. Not so soon: of cooperative members a newcomer gets its share in the second round."""
        now = time.monotonic()
        if self._empty_since is None:
            self._empty_since = now
        if now - self._empty_since < _SETTLED_SECONDS:
            return False
        return all(group.state == "stable" for group in self._admin.describe_groups([self._group]))

    def read(self, timeout: float) -> Iterator[ConsoleRow]:
        messages = self._consumer.receive_many(min(_TAKEN_AT_ONCE, self._left), timeout)
        self._left -= len(messages)
        if messages:
            self.broker_lost = False
        elif self.broker_lost and not self._follow:
            raise unreachable(self._bootstrap)
        for message in messages:
            if message.offset + 1 >= self._ends.get(message.partition, 0):
                self._passed.add((message.topic, message.partition))
            yield ConsoleRow(
                message.topic,
                message.partition,
                message.offset,
                message.timestamp,
                message.key,
                message.raw_value,
                message.headers,
            )

    def close(self) -> None:
        self._consumer.close()


def _settings(admin: Admin, group: str) -> dict[str, Any]:
    """A guest does as the others do: members that assign in different ways cannot be in one group."""
    settings: dict[str, Any] = {"client.id": "penstock-consume"}
    for found in admin.describe_groups([group]):
        if found.members and found.assignor in _STRATEGIES:
            settings["partition.assignment.strategy"] = found.assignor
    return settings
