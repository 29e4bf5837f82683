"""Brokers share one store on virtual time, with delays, lost calls and a crash; the seed decides, and repeats."""

import asyncio

import pytest

from penstock.coordination.memory import Fault, MemoryStore
from penstock.coordination.metadata import MetadataStore, NewTopic
from penstock.coordination.nodes import PartitionState
from penstock.coordination.registration import BrokerRegistration
from penstock.coordination.tree import ConflictError, ConnectionLostError
from penstock.testing.sim_loop import SimLoop

SESSION_TIMEOUT_S = 6.0
BROKERS = (1, 2, 3)
TOPICS_EACH = 4


class Cluster:
    def __init__(self, loop):
        self.loop = loop
        self.store = MemoryStore()
        self.trees = {}
        self.blocks = []
        self.acknowledged = []

    async def broker(self, number):
        random = self.loop.random(f"broker-{number}")
        tree = await self.store.connect(
            session_timeout_s=SESSION_TIMEOUT_S, delay_s=lambda: random.uniform(0, 0.01)
        )
        self.trees[number] = tree
        metadata = MetadataStore(tree, random)
        await metadata.load()
        await metadata.register_broker(BrokerRegistration(number, f"disk-{number}", "host", 9092))
        for serial in range(TOPICS_EACH):
            if random.random() < 0.3:
                tree.fail_next(random.choice(list(Fault)))
            try:
                self.blocks.append((await metadata.next_producer_id_block()).start)
                state = PartitionState((number,), (number,), number)
                await metadata.create_topics([NewTopic(f"topic-{number}-{serial}", [state] * 3)])
                self.acknowledged.append(f"topic-{number}-{serial}")
            except (ConnectionLostError, ConflictError):
                continue
        await metadata.follow()


def _run(seed):
    with SimLoop(seed) as loop:
        cluster = Cluster(loop)
        for number in BROKERS:
            loop.spawn(f"broker-{number}", cluster.broker(number))
        loop.run_for(1)

        async def crash_and_look():
            loop.crash("broker-1")
            cluster.trees[1].disconnect()
            watcher = MetadataStore(await cluster.store.connect(), loop.random("watcher"))
            before = set((await watcher.load()).brokers)
            await asyncio.sleep(SESSION_TIMEOUT_S + 0.1)
            await watcher.load()
            return before, watcher.image

        before, image = loop.run_until_complete(crash_and_look())
        return cluster, before, image, loop.trace_hash


@pytest.mark.parametrize("seed", range(20))
def test_nothing_acknowledged_is_lost_and_a_crashed_broker_leaves_when_its_session_does(seed):
    cluster, before, image, _ = _run(seed)
    assert before == {1, 2, 3}
    assert set(image.brokers) == {2, 3}
    assert set(cluster.acknowledged) <= set(image.topics)
    assert len(cluster.acknowledged) > 0
    assert len(set(cluster.blocks)) == len(cluster.blocks)


def test_the_same_seed_takes_the_same_course():
    assert _run(7)[3] == _run(7)[3]
    assert _run(7)[3] != _run(8)[3]
