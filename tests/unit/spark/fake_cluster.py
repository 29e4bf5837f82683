"""A cluster of dictionaries, for everything the driver plans."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.client.raw import (
    EARLIEST,
    LATEST,
    OffsetAt,
    Retirement,
    TopicInfo,
    TopicPartition,
    UnknownTopicError,
)


@dataclass
class FakeLog:
    start: int = 0
    end: int = 0
    stable: int | None = None
    times: tuple[int, ...] = ()  # of the records from `start` on
    limit: int | None = None  # where readers of the partition stood that had this number before
    first: int = 0


@dataclass
class FakeCluster:
    logs: dict[TopicPartition, FakeLog] = field(default_factory=dict)
    ids: dict[str, uuid.UUID] = field(default_factory=dict)
    removed: dict[TopicPartition, Retirement] = field(default_factory=dict)
    # What there is in truth, while a leader answers that was replaced and has not heard of it.
    behind: dict[TopicPartition, FakeLog] | None = None
    # Of topics that are not deleted from alone.
    policies: dict[str, frozenset[str]] = field(default_factory=dict)

    def create(self, topic: str, *logs: FakeLog) -> None:
        """Made anew when there is one of that name."""
        self.delete(topic)
        self.ids[topic] = uuid.uuid4()
        self.logs |= {TopicPartition(topic, number): log for number, log in enumerate(logs)}

    def delete(self, topic: str) -> None:
        self.ids.pop(topic, None)
        self.logs = {at: log for at, log in self.logs.items() if at.topic != topic}

    def hear_all(self, topics: Iterable[str]) -> None:
        """What all brokers together know; see `behind`."""
        if self.behind is not None:
            self.logs, self.behind = self.behind, None

    def topics(self) -> dict[str, TopicInfo]:
        return self.describe(self.ids)

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        names = list(names)
        missing = [name for name in names if name not in self.ids]
        if missing:
            raise UnknownTopicError(missing)
        return {
            name: TopicInfo(
                name,
                self.ids[name],
                tuple(at.partition for at in self.logs if at.topic == name),
                name.startswith("__"),
            )
            for name in names
        }

    def grow_again(self, at: TopicPartition, *, limit: int, start: int, end: int) -> None:
        """After the one of this number was retired and removed: offsets never go back."""
        self.logs[at] = FakeLog(start, end, limit=limit, first=start)

    def retire(self, at: TopicPartition) -> None:
        """And remove it."""
        end = self.logs.pop(at).end
        self.removed[at] = Retirement(end, end)

    def retirements(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Retirement]:
        there = {at: Retirement(None, log.first) for at, log in self.logs.items()}
        return {at: (self.removed | there)[at] for at in wanted if at in self.removed or at in there}

    def cleanup_policies(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        return {name: self.policies.get(name, frozenset({"delete"})) for name in names if name in self.ids}

    def serves(self, at: TopicPartition, offset: int) -> bool:
        log = self.logs[at]
        return (log.start if log.limit is None else log.limit) <= offset <= log.end

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, OffsetAt]:
        return {at: self._offset(self.logs[at], time, committed=committed) for at, time in wanted.items()}

    @staticmethod
    def _offset(log: FakeLog, time: int, *, committed: bool) -> OffsetAt:
        if time == EARLIEST:
            return OffsetAt(log.start, -1)
        if time == LATEST:
            return OffsetAt(log.stable if committed and log.stable is not None else log.end, -1)
        for number, written in enumerate(log.times):
            if written >= time:
                return OffsetAt(log.start + number, written)
        return OffsetAt(-1, -1)
