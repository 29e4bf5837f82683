"""Random stories of commits with and without transactions on a broker: what is held is what is loaded again."""

import random
from typing import Any

import pytest
from tests.unit.frontends.group_requests import commit, machine, prepared
from tests.unit.frontends.in_memory import Asked
from tests.unit.frontends.transactional_commits import (
    PRODUCER,
    commit_beside_marker,
    end,
    serving,
    shard,
    txn_commit,
)

from penstock.groups.state import CoordinatorState
from penstock.replication.transactions import MarkerToWrite
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import delete_groups, offset_delete

STEPS = 60


def seen(state: CoordinatorState) -> tuple[Any, ...]:
    offsets = {
        (group, topic, partition): value
        for group, table in state.offsets.items()
        for topic, partition, value in table.all()
    }
    waiting = {
        (group, place): list(producers.items())
        for group, places in state.pending.by_group.items()
        for place, producers in places.items()
    }
    return offsets, waiting, set(state.groups), state.size_bytes


async def _step(asked: Asked, rng: random.Random, epochs: dict[int, int]) -> None:
    group, partition, offset = rng.choice("gh"), rng.randrange(2), rng.randrange(1000)
    producer = PRODUCER + rng.randrange(3)
    match rng.choice(["plain", "plain", "txn", "txn", "txn", "end", "end", "late", "delete", "group"]):
        case "plain":
            assert await commit(asked, offset=offset, partition=partition, group_id=group) == 0
        case "txn":
            epoch = epochs.setdefault(producer, 0)
            which = {"producer_id": producer, "producer_epoch": epoch, "group_id": group}
            assert await txn_commit(asked, 5, offset=offset, partition=partition, **which) == 0
        case "late" if producer in epochs:
            # A repeat of the marker before: whatever is open under the epoch that it raised stays so.
            marker = MarkerToWrite(producer, epochs[producer], rng.random() < 0.5, 0, 2)
            which = {"partition": partition, "group_id": group, "turns": rng.randrange(4)}
            await commit_beside_marker(asked, marker, offset=offset, **which)
            waiting = shard(asked).state.pending.of_group(group)[("orders", partition)]
            assert waiting[producer].offset == offset
        case "end":
            epochs[producer] = epochs.get(producer, 0) + 1
            committed = rng.random() < 0.6
            await end(asked, committed=committed, epoch=epochs[producer], producer_id=producer)
        case "delete":
            part = offset_delete.OffsetDeleteRequestPartition(partition_index=partition)
            topic = offset_delete.OffsetDeleteRequestTopic(name="orders", partitions=[part])
            request = offset_delete.OffsetDeleteRequest(group_id=group, topics=[topic])
            await asked.ask(ApiKey.OFFSET_DELETE, request, 0)
        case "group":
            await asked.ask(ApiKey.DELETE_GROUPS, delete_groups.DeleteGroupsRequest(groups_names=[group]), 2)


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_held_is_what_is_loaded(seed: int) -> None:
    rng, disk, epochs = random.Random(seed), machine({"offsets.topic.num.partitions": "1"}), dict[int, int]()
    async with serving(disk) as (asked, _):
        await prepared(asked)
    pending = 0
    for _ in range(4):
        async with serving(disk) as (asked, _):
            for _ in range(STEPS):
                await _step(asked, rng, epochs)
            held = seen(shard(asked).state)
            pending += len(held[1])
        async with serving(disk) as (asked, _):
            assert seen(shard(asked).state) == held
    assert pending, "no transaction was ever open at a restart"
