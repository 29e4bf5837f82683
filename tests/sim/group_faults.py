"""Errors raised between a change of a group in memory and its append, and bugs to be planted into coordinators."""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.frontends.kafka import portions
from penstock.groups.decision import CoordinatorRecord, KnownTopics
from penstock.groups.offsets.table import LiveOffsets, OffsetTable
from penstock.groups.records.offset_value import CommittedOffset
from penstock.groups.state import CoordinatorState
from penstock.records.builder import BatchBuilder
from penstock.services.coordinator import group_offsets
from penstock.services.coordinator.group_offsets import GroupOffsetService
from penstock.services.coordinator.shard import Shard

STEPS = ("append", "build", "load")


class PlantedError(Exception):
    pass


class FaultyBuilder(BatchBuilder):
    """Raises at the next step it was told to, once."""

    step = ""

    def append(self, value: bytes | None, **fields: Any) -> int:
        self.reach("append")
        return super().append(value, **fields)

    def build(self) -> bytearray:
        self.reach("build")
        return super().build()

    @staticmethod
    def reach(step: str) -> None:
        if FaultyBuilder.step == step:
            FaultyBuilder.step = ""
            raise PlantedError(step)


class FaultyState(CoordinatorState):
    """Of a shard that is loaded."""

    __slots__ = ()

    def apply(self, key: bytes | None, value: bytes | None, offset: int = -1, producer_id: int = -1) -> bool:
        if offset >= 0:
            FaultyBuilder.reach("load")
        return super().apply(key, value, offset, producer_id)


class SlowTurns:
    """In place of `Turns`: much happens between two steps."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng

    def take(self, steps: Iterator[None]) -> None:
        self._loop.call_later(self._rng.uniform(0, 0.3), self._step, steps)

    def _step(self, steps: Iterator[None]) -> None:
        for _ in steps:
            self.take(steps)
            break


Plant = Callable[[pytest.MonkeyPatch], None]


def remember_commits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The short path of OffsetCommit does not notice that the metadata changed."""
    monkeypatch.setattr(ClusterImage, "changes", property(lambda _: 0, lambda _, __: None), raising=False)


def deletions_unseen_while_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted topic takes along only the offsets of shards that are in service."""
    honest = CoordinatorState.hear_of_topics

    def forgetful(
        state: CoordinatorState, topics: KnownTopics, names: Iterable[str] | None = None
    ) -> Iterator[list[CoordinatorRecord]]:
        return iter(()) if names is None else honest(state, topics, names)

    monkeypatch.setattr(CoordinatorState, "hear_of_topics", forgetful)


def tell_what_is_not_dropped_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of a topic that is gone are told until their tombstones are stored."""
    monkeypatch.setattr(LiveOffsets, "of_topic", OffsetTable.of_topic)


def tombstones_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored later is not held against what was committed meanwhile."""
    honest = CoordinatorState.hear_of_topics

    def hasty(
        state: CoordinatorState, topics: KnownTopics, names: Iterable[str] | None = None
    ) -> Iterator[list[CoordinatorRecord]]:
        return iter(list(honest(state, topics, names)))

    monkeypatch.setattr(CoordinatorState, "hear_of_topics", hasty)


def memory_ahead_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets are in memory before it is known that they can be stored, and stay there when they cannot."""
    honest = GroupOffsetService.commit

    def hasty(service: GroupOffsetService, by: Any, entries: Any, retention_ms: int, later: Any) -> None:
        try:
            shard = service._runtime.shard_of(by.group_id)
        except ApiError:
            return honest(service, by, entries, retention_ms, later)
        if group_offsets.check_committer(shard.state.groups.get(by.group_id), by) is ErrorCode.NONE:
            for topic, topic_id, partition, offset, *_ in entries:
                value = CommittedOffset(offset, topic_id=topic_id)
                shard.state.set_offset(by.group_id, topic, partition, value)
        return honest(service, by, entries, retention_ms, later)

    monkeypatch.setattr(group_offsets, "expiry", lambda retention_ms, now_ms: now_ms + retention_ms + 1)
    monkeypatch.setattr(GroupOffsetService, "commit", hasty)
    go_on_after_an_error(monkeypatch)


def go_on_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be appended stays in memory."""
    honest = Shard.fail

    def carefree(shard: Shard, error: Exception, later: Any = None) -> None:
        if isinstance(error, PlantedError) and error.args == ("build",):
            honest(shard, error, later)
        elif later is not None:
            later.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    monkeypatch.setattr(Shard, "fail", carefree)


def end_the_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody foresaw while a shard is loaded ends the task that loads them all."""
    honest = Shard.fail

    def strict(shard: Shard, error: Exception, later: Any = None) -> None:
        if isinstance(error, PlantedError) and error.args == ("load",):
            raise error
        honest(shard, error, later)

    monkeypatch.setattr(Shard, "fail", strict)


def join_what_looks_alike(whole: Any, more: Any, continued: int) -> None:
    """The rest of a group that was cut is told apart where its error is another."""
    for name in whole.__slots__:
        known, added = getattr(whole, name), getattr(more, name)
        if isinstance(known, list) and added:
            if continued and known and portions._own(known[-1]) == portions._own(added[0]):
                join_what_looks_alike(known[-1], added[0], continued - 1)
                added = added[1:]
            known.extend(added)
