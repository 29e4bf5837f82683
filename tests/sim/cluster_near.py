"""A cluster whose brokers stand in racks, and consumers that read from the replica in their own (KIP-392)."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from tests.sim.cluster_clients import PASSING, ClusterClient, History, Violation, follow
from tests.sim.cluster_story import BROKERS, Story
from tests.sim.messages import NETWORK_TROUBLE, fetch_request, records_of

from penstock.config.replication_settings import RACK_AWARE
from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import PORT, SESSION_SECONDS
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

NEAREST = {"replica.selector.class": RACK_AWARE}
SHARED = 0  # the partition that several producers write to: what is lost is followed by something else
# How long a consumer stays where it was sent; real ones do for five minutes.
LEASE_SECONDS = 2.0


def rack_of(broker: int) -> str:
    return f"rack-{broker}"


class NearHistory:
    def __init__(self) -> None:
        self.from_followers = 0
        self.from_leaders = 0
        self.turned_away = 0


class NearStory(Story):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, NEAREST)
        give_racks(self)
        self.near = NearHistory()

    def begin(self) -> None:
        super().begin()
        read_near(self, self.near, (SHARED, 1, SHARED))
        for name, kind in (("plain", PlainClient), ("fresh", FreshClient)):
            client = kind(self.names, self.loop.random(f"{name}/client"))
            self.spawn(name, follow(self.history, client, SHARED))

    def misfortune(self) -> None:
        what = self.rng.random()
        if what < 0.4:
            self._lose_what_one_follower_has()
        elif what < 0.55:
            self._replace_a_leader_that_does_not_hear_of_it()
        else:
            super().misfortune()

    def _replace_a_leader_that_does_not_hear_of_it(self) -> None:
        leader = self.machines[self._state(SHARED).leader - 1]
        if leader.ready:
            leader.cut_off()
            self.let_pass(SESSION_SECONDS * self.rng.uniform(2, 3))
            if leader.running:
                leader.reach_store()

    def _lose_what_one_follower_has(self) -> None:
        """The next leader lacks what the others have when the last one dies, which comes back before it can ask."""
        state = self._state(SHARED)
        heirs = [replica for replica in state.replicas if replica in state.isr and replica != state.leader]
        if state.leader < 0 or len(heirs) < 2 or not self.machines[state.leader - 1].ready:
            return
        leader, heir = self.machines[state.leader - 1], self.machines[heirs[0] - 1]
        self.loop.network.stall(leader.name, heir.name)
        self.let_pass(self.rng.uniform(0.1, 0.6))
        self.turn_off(leader, power=False)
        self.let_pass(self.rng.uniform(1, 2) * SESSION_SECONDS)
        self.loop.network.heal_all()

    def check_near(self) -> None:
        """After all is well again, whoever stands in a rack reads there, or at the leader."""
        before = self.near.from_followers
        self.let_pass(LEASE_SECONDS + 1)
        if self.near.from_followers == before:
            raise Violation("nobody reads from followers any more")

    def check_data(self) -> None:
        self.check_near()
        super().check_data()


def read_near(story: Story, near: NearHistory, partitions: Sequence[int]) -> list[str]:
    """A consumer in the rack of each broker, for one of `partitions` each; their names."""
    names = [f"near-{number}" for number in range(1, BROKERS + 1)]
    for number, (name, partition) in enumerate(zip(names, partitions, strict=True), 1):
        client = story.client(name)
        reader = NearReader(client, story.names, partition, rack_of(number), story.loop.random(name))
        story.spawn(name, reader.follow(story.history, near))
    return names


def give_racks(story: Story) -> None:
    for number, machine in enumerate(story.machines, 1):
        machine._settings["broker.rack"] = rack_of(number)


class PlainClient(ClusterClient):
    """Knows nothing of leader epochs, as many do not: it believes whoever it asks, and asks again and again."""

    async def epoch(self, partition: int) -> int:
        if self._rng.random() < 0.2:
            self.forget(partition)
        await super().epoch(partition)
        self._epochs.clear()
        return -1


class FreshClient(ClusterClient):
    """Begins anew again and again, and believes the epoch that the first best broker tells it."""

    async def epoch(self, partition: int) -> int:
        if self._rng.random() < 0.2:
            self.forget(partition)
            self._epochs.clear()
        return await super().epoch(partition)


class NearReader:
    """One consumer that goes where it is sent, and back to the leader when anything is amiss."""

    def __init__(
        self, client: ClusterClient, names: list[str], partition: int, rack: str, rng: Random
    ) -> None:
        self._client = client
        self._names = names
        self._partition = partition
        self._rack = rack
        self._rng = rng
        self._near: SimClient | None = None
        self._until = 0.0

    async def follow(self, history: History, near: NearHistory) -> None:
        offset = 0
        while True:
            try:
                answer = await self._ask(offset)
            except NETWORK_TROUBLE:
                await self._go_back()
                continue
            if answer.error_code in PASSING:
                near.turned_away += self._near is not None
                await self._go_back()
                continue
            if answer.error_code != ErrorCode.NONE:
                raise Violation(f"a reader at {offset} was told {ErrorCode(answer.error_code).name}")
            if answer.preferred_read_replica >= 0:
                self._near = SimClient(self._names[answer.preferred_read_replica - 1], PORT, 2.0)
                self._until = asyncio.get_running_loop().time() + LEASE_SECONDS
                continue
            for record in records_of(answer, offset):
                if record.offset != offset:
                    raise Violation(f"a reader of {self._partition} at {offset} was given {record.offset}")
                history.saw(self._partition, record.offset, record.value or b"")
                near.from_followers += self._near is not None
                near.from_leaders += self._near is None
                offset = record.offset + 1

    async def _ask(self, offset: int) -> Any:
        if self._near is not None and asyncio.get_running_loop().time() > self._until:
            self._near = None
        epoch = await self._client.epoch(self._partition)
        request = fetch_request(self._partition, offset, rack=self._rack, epoch=epoch)
        if self._near is None:
            answered = await self._client.ask_leader(self._partition, ApiKey.FETCH, request)
        else:
            answered = await self._near.call(ApiKey.FETCH, request)
        return answered.responses[0].partitions[0]

    async def _go_back(self) -> None:
        self._near = None
        self._client.forget(self._partition)
        await asyncio.sleep(self._rng.uniform(0.02, 0.1))
