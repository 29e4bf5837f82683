"""Bugs around logs that are opened again, or found shorter at a start, to be planted into a simulated cluster."""

from typing import Any

import pytest
from tests.sim.cluster_planted import Plant

from penstock.coordination.image import Topic as TopicImage
from penstock.replication.partition import Partition
from penstock.replication.table import Topic
from penstock.server.broker import Broker
from penstock.server.membership import Membership
from penstock.services.hosting.hosting import Hosting
from penstock.services.hosting.roles import Roles
from penstock.storage import recovery
from penstock.storage.log import Log
from penstock.storage.names import DirectoryNames


def leads_on_with_another_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """What followers had of the log that failed counts for what is written to the one in its place."""

    async def let_go(roles: Roles, topic: Topic, partition: Partition) -> None:
        await roles.let_go(partition)

    monkeypatch.setattr(Roles, "stand_aside", let_go)


def opens_what_failed_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that failed after the others' failure was told is opened with them."""
    honest = Hosting.reopen_failed

    class All(frozenset[Log]):
        def __contains__(self, log: object) -> bool:
            return isinstance(log, Log) and log.failed

    async def careless(hosting: Hosting, logs: Any) -> None:
        await honest(hosting, All())

    monkeypatch.setattr(Hosting, "reopen_failed", careless)


def doubts_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is offline makes its broker begin anew, each time that it cannot be opened."""
    honest = Broker._bring_back_offline_logs

    async def forgetful(broker: Broker) -> None:
        broker._told_failed = set()
        await honest(broker)

    monkeypatch.setattr(Broker, "_bring_back_offline_logs", forgetful)


def takes_a_new_log_for_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing vouches for it, and its broker says that it was stopped cleanly."""
    honest = Hosting._not_opened

    def not_opened(hosting: Hosting, image: TopicImage, index: int, error: Any) -> None:
        honest(hosting, image, index, error)
        state = image.partitions[index]
        if not hosting._roles.may_play() and hosting._node in (*state.isr, *state.eligible):
            hosting.is_whole = False

    monkeypatch.setattr(Hosting, "_counts_as_whole", lambda *_: False)
    monkeypatch.setattr(Hosting, "_not_opened", not_opened)


def takes_what_is_not_open_for_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that could not be opened at the start may turn out to be shorter when its broker leads."""

    def not_opened(hosting: Hosting, *_: Any) -> None:
        hosting._unfinished = True

    monkeypatch.setattr(Hosting, "_not_opened", not_opened)


def tells_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that failed is opened again as if nothing had been."""

    async def settled(membership: Membership) -> bool:
        return True

    monkeypatch.setattr(Membership, "begin_anew", settled)


def misses_no_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gone from the front or the middle of a log is not noticed."""
    monkeypatch.setattr(recovery, "damaged_segments", lambda *_, **__: [])


def takes_what_nothing_vouches_for_as_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log without its recovery point, and with a hole, is in sync by its end."""
    monkeypatch.setattr(DirectoryNames, "note_incomplete", lambda names: None)


# Where nothing but `files` happens, found by seeds 1 (the last one), 2 (a new log) and 67 (no segment).
PLANTED: list[Plant] = [
    leads_on_with_another_log,
    opens_what_failed_since,
    doubts_again_and_again,
    takes_a_new_log_for_whole,
    takes_what_is_not_open_for_whole,
    tells_nobody,
    misses_no_segment,
    takes_what_nothing_vouches_for_as_complete,
]
