"""Bugs that Penstock had once, planted again: each needs something to be late, lost or read wrong to do its harm."""

from pathlib import Path
from typing import Any

import pytest
from tests.sim.cluster_planted import Plant

from penstock.core.files import Files
from penstock.replication import following
from penstock.replication.fetchers import Fetchers
from penstock.replication.following import Follower
from penstock.replication.leader_questions import Questions
from penstock.replication.partition import Partition
from penstock.server.broker import Broker
from penstock.server.cluster import ClusterMember
from penstock.storage.layout import LOG, segment_name
from penstock.storage.replicated import append_replicated
from penstock.storage.segment import Segment
from penstock.storage.truncation import Truncation
from penstock.wire.kafka.generated.fetch import PartitionData


def writes_over_what_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was cut grows again, and followers take whatever has the right offset."""

    def cut(job: Truncation, last: Segment) -> None:
        last.file.truncate(job.end.position)

    def trusting(log: Any, data: memoryview, now_ms: int, *, starts: Any, **_: object) -> None:
        append_replicated(log, data, now_ms, starts=starts)

    monkeypatch.setattr(Truncation, "_cut_last", cut)
    monkeypatch.setattr(following, "append_replicated", trusting)


def leaves_a_start_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker fetches before it is registered; when it gives up, its fetchers go on beside those of the next try."""
    honest = Segment.create.__func__  # type: ignore[attr-defined]

    async def abandon(broker: Broker) -> None:
        await broker.listeners.close()
        broker.data_dir.close(clean=broker.data_dir.was_clean)

    def create(cls: type[Segment], files: Files, directory: Path, base_offset: int) -> Segment:
        file = files.open(directory / segment_name(base_offset, LOG), create=True)
        file.truncate(0)
        file.close()
        return honest(cls, files, directory, base_offset)  # type: ignore[no-any-return]

    monkeypatch.setattr(Broker, "abandon", abandon)
    monkeypatch.setattr(ClusterMember, "_may_play", lambda cluster: True)
    monkeypatch.setattr(Segment, "create", classmethod(create))


def lets_a_fetcher_die_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read error behind an append ends the fetcher, and nobody looks."""
    honest = Follower.take

    async def take(
        follower: Follower, partition: Partition, epoch: int, answer: PartitionData, leader: Questions
    ) -> bool:
        if not await honest(follower, partition, epoch, answer, leader) and not answer.error_code:
            raise RuntimeError("nobody caught this")
        return True

    monkeypatch.setattr(Follower, "take", take)
    monkeypatch.setattr(Fetchers, "_ended", lambda fetchers, name, error: None)


# Found by seeds 18, 0 and 1.
PLANTED: list[Plant] = [
    writes_over_what_was_cut,
    leaves_a_start_running,
    lets_a_fetcher_die_in_silence,
]
