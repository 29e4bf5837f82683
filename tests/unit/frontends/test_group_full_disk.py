"""A full disk, and tombstones that groups have to store by themselves: the shard rests between two attempts to load."""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.frontends.group_requests import active, commit, machine, prepared
from tests.unit.waiting import until

from penstock.services.coordinator import runtime as runtimes
from penstock.services.topics.deletions import TopicReference

if TYPE_CHECKING:
    from collections.abc import Iterator

_RETRY_SECONDS = 0.2
_ROUNDS = 5


async def test_groups_rest_while_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(runtimes, "_RETRY_SECONDS", _RETRY_SECONDS)
    honest, loads = runtimes.load, 0

    async def counted(*arguments: Any) -> Any:
        nonlocal loads
        loads += 1
        return await honest(*arguments)

    monkeypatch.setattr(runtimes, "load", counted)
    computer = machine({"offsets.topic.num.partitions": "1"})
    async with computer.broker() as asked:
        coordinator = asked.services.coordinator
        await prepared(asked)
        assert await commit(asked, offset=5) == 0
        await active(asked)
        # What it hears of the deletion it stores when the disk is full.
        held: list[Iterator[None]] = []
        in_turns, coordinator.in_turns = coordinator.in_turns, held.append
        await asked.services.topics.delete([TopicReference("orders")], timeout_ms=1_000)
        trash = asked.broker.data_dir.path / "trash"
        await until(lambda: held and not computer.files.list_dir(trash))  # else its files make room
        computer.files.fill_up(0)
        coordinator.in_turns = in_turns
        for steps in held:
            in_turns(steps)
        began = asyncio.get_running_loop().time()
        await until(lambda: loads >= _ROUNDS)
        # Each attempt looks once, and once more when it has asked for the latest metadata.
        assert asyncio.get_running_loop().time() - began >= (_ROUNDS // 2 - 1) * _RETRY_SECONDS
        computer.files.make_room()
        await active(asked)
        await until(lambda: coordinator.shard_of("g").unheard is None)
        assert len(caplog.records) <= 2 * _ROUNDS
