"""Bugs of a relay, to be planted into the simulated cluster: each would lose records, or bring them twice."""

import asyncio
from typing import Any

import pytest
from tests.sim.cluster_planted import Plant

from penstock.controller import retirer
from penstock.coordination.image import Topic as TopicImage
from penstock.coordination.nodes import Removed
from penstock.core.errors import ApiError
from penstock.records.batch import BatchHeader, Buffer
from penstock.records.relay import RelayPlace, RelaySource, position_batch, relayed_by, retired_source
from penstock.replication import retirement
from penstock.replication.partition import Partition
from penstock.services import retiring
from penstock.services.hosting import log_opening as opening
from penstock.services.relay import pump, retired
from penstock.services.relay import source as relay_source
from penstock.services.relay.inbox import RelayInbox
from penstock.services.relay.sender import RelaySender
from penstock.storage.data_dir import DataDir
from penstock.storage.log import Log
from penstock.storage.producer_copy import AppendedBatch
from penstock.storage.producers import ProducerState
from penstock.storage.recovered import Recovered
from penstock.storage.relay_positions import RelayPosition

# Of simulated time.
_LOOK_SECONDS = 0.01


def takes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target does not look whether it has it, nor whose it is: most that come late are of an old registration."""
    monkeypatch.setattr(ProducerState, "check_relayed", lambda *given: None)
    monkeypatch.setattr(RelayInbox, "check_sender", lambda *given: None)


def goes_by_what_it_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader of the source does not ask the target, but begins where the log ends."""

    async def nothing(route: RelaySender) -> tuple[RelayPlace, ...]:
        return ()

    def at_the_end(log: Log, limit: int, places: tuple[RelayPlace, ...]) -> tuple[int, bool]:
        return max(limit, log.end_offset), True

    monkeypatch.setattr(RelaySender, "places", nothing)
    monkeypatch.setattr(retired, "parted_at", at_the_end)


def moves_what_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are moved as soon as they are there, and a fail-over may still take them back."""

    async def hasty(relay: pump.Pump) -> None:
        source: Any = relay._source
        partition, limit = source._partition, source._retirement.limit
        while relay._next >= partition.log.end_offset - limit:  # noqa: ASYNC110 - nothing tells of what is only appended
            await asyncio.sleep(_LOOK_SECONDS)
        limits = partition.limits
        committed, limits.high_watermark = limits.high_watermark, partition.log.end()
        try:
            chunk = await source.read(relay._next, relay._place)
        finally:
            limits.high_watermark = committed
        await relay._target.deliver(chunk.batches)
        relay._next, relay._place = chunk.next_number, chunk.place
        source.moved(chunk.next_number)

    monkeypatch.setattr(pump.Pump, "_move", hasty)


def each_leader_chooses_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the metadata says of the limit is forgotten when another broker leads."""
    honest = retirement.retire

    def retire(partition: Partition, limit: int, epoch: int | None, written_ms: int) -> None:
        honest(partition, max(limit, partition.high_watermark), epoch, written_ms)

    monkeypatch.setattr("penstock.services.hosting.roles.retire", retire)


def chooses_before_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader names a limit below what readers of the last one have seen."""

    def freeze(partition: Partition, now_ms: int) -> int:
        if partition.retirement is None:
            if partition.leading is not None and partition.high_watermark > 3:
                limit = partition.high_watermark - 3
            else:
                raise ApiError(3)  # type: ignore[arg-type]
            retirement.retire(partition, limit, partition.leader_epoch, now_ms)
        assert partition.retirement is not None
        return partition.retirement.limit

    monkeypatch.setattr(retiring, "freeze", freeze)


def believes_what_is_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target tells of what it has appended, and may still lose; the source's retention takes that for moved."""
    monkeypatch.setattr(RelayPosition, "is_committed", lambda word, high_watermark: True)


def waits_for_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target takes nothing behind a gap, also where nobody can fill it any more."""

    def unsaid(source: RelaySource, place: RelayPlace, now_ms: int, *, skips: bool = False) -> bytearray:
        return bytearray() if skips else position_batch(source, place, now_ms)

    monkeypatch.setattr(relay_source, "position_batch", unsaid)


def begins_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a target that knows nothing of a relay, whatever comes first is the beginning; nor is it asked before that."""
    honest = ProducerState.check_relayed

    def check_relayed(state: ProducerState, header: BatchHeader, batch: Buffer) -> AppendedBatch | None:
        known = state.relays.get(retired_source(relayed_by(header).source))
        return None if known is None else honest(state, header, batch)

    monkeypatch.setattr(ProducerState, "check_relayed", check_relayed)
    monkeypatch.setattr(pump.Pump, "_look_at_target", lambda relay: None)


def begins_at_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that is made again does not know of the one before it."""
    monkeypatch.setattr(opening, "first_offset", lambda image, index: 0)


def keeps_what_seems_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory whose log starts where the new one begins is taken for the new one's."""
    honest = DataDir.open_partition

    def by_offset(data_dir: DataDir, *place: Any, first_offset: int = 0, **how: Any) -> Recovered:
        how["first_epoch"] = 0
        recovered = honest(data_dir, *place, first_offset=first_offset, **how)
        if recovered.log.start_offset < first_offset:
            recovered.log.close()
            data_dir.discard_partition(*place[:3])
            recovered = honest(data_dir, *place, first_offset=first_offset, **how)
        return recovered

    monkeypatch.setattr(DataDir, "open_partition", by_offset)


def believes_any_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the leader tells of a removed partition's end counts, also when its log was lost; so does an empty log."""

    def as_told(topic: TopicImage, number: int, end: int) -> Removed:
        state = topic.partitions[number]
        assert state.retirement is not None
        return Removed(state.retirement.offset, end, state.leader_epoch + 1)

    monkeypatch.setattr(retirer, "removed", as_told)
    honest = opening.first_offset
    monkeypatch.setattr(
        opening,
        "first_offset",
        lambda image, index: honest(image, index) if image.partitions[index].retirement is None else 0,
    )


def sends_readers_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stood where the last one was retired is told that the place is none, and begins wherever it likes."""
    monkeypatch.setattr(Partition, "in_gap", lambda partition, offset: False)


PLANTED: list[Plant] = [
    goes_by_what_it_remembers,
    moves_what_is_not_committed,
    each_leader_chooses_its_own_limit,
    chooses_before_it_knows,
]
