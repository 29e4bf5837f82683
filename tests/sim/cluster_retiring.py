"""A simulated cluster in which the second of two partitions is retired, whatever else happens meanwhile.

What producers wrote to it is in it, below the offset at which it was retired, or in the first partition: once, and in
the order it was written.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.sim.cluster_clients import ClusterClient, Violation, read_partition
from tests.sim.cluster_story import Story
from tests.sim.messages import NETWORK_TROUBLE, PRODUCERS, TOPIC

from penstock.coordination.nodes import RetirementState
from penstock.core.error_codes import ErrorCode
from penstock.replication.following import Follower
from penstock.replication.partition import Partition
from penstock.replication.retirement import is_drained
from penstock.testing.sim_broker import SimBroker
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import incremental_alter_configs

RETIRED, INTO = 1, 0
WRITER = 1  # the producer whose partition it is
_SET = 0
_TOPIC_RESOURCE = 2


class RetiringStory(Story):
    def __init__(
        self, loop: SimLoop, settings: dict[str, str] | None = None, *, synced: bool | None = None
    ) -> None:
        fast = {"penstock.retire.check.interval.ms": "200"}
        super().__init__(loop, {**fast, **(settings or {})}, synced=synced)

    def begin_to_retire(self) -> None:
        """It will happen, however long the controller or the leader is away."""
        self.configure({"penstock.retire.to": str(RETIRED)})

    def configure(self, configs: dict[str, str], teller: str = "admin") -> None:
        self.spawn(teller, _configure(self.client("retiring"), configs))

    def misfortune(self) -> None:
        """Whatever may happen, and often it happens to a leader that moves records, or that takes them."""
        leader = self.leader(self.rng.choice([RETIRED, INTO]))
        if self.rng.random() < 0.5 or leader is None or not leader.running:
            super().misfortune()
        elif self.rng.random() < 0.5 and self._can_lose_the_end():
            self._lose_the_end()
        else:
            self.turn_off(leader, power=self.may_lose_power(leader) and self.rng.random() < 0.5)

    def _can_lose_the_end(self) -> bool:
        all_up = all(machine.ready for machine in self.machines)
        return all_up and self.is_retired() and self.leader(RETIRED) is not self.leader(INTO)

    def _lose_the_end(self) -> None:
        """The leader dies with records that no follower took; those that it moves are taken meanwhile as ever."""
        leader = self.leader(RETIRED)
        assert leader is not None
        followers = [machine for machine in self.machines if machine is not leader]
        with ExitStack() as held_up:
            for machine in followers:
                held_up.enter_context(takes_nothing(machine, RETIRED))
            self._wait_until(lambda: self._end_of(leader) > max(map(self._end_of, followers)))
            self.let_pass(self.rng.uniform(0.02, 0.3))
            if leader.running:
                self.turn_off(leader, power=False)

    def _end_of(self, machine: SimBroker) -> int:
        replica = self.replica(machine, RETIRED)
        return -1 if replica is None else replica.log.end_offset

    def is_retired(self) -> bool:
        return self._state(RETIRED).retirement is not None

    def is_hidden(self) -> bool:
        return self._state(RETIRED).hidden

    def written_to(self, index: int) -> int:
        """How many records were acknowledged."""
        return sum(partition == index for partition, _ in self.history.acknowledged)

    def replica(self, machine: SimBroker, index: int) -> Partition | None:
        topic = None if machine.broker is None else machine.broker.table.by_name.get(TOPIC.encode())
        return None if topic is None else topic.partitions.get(index)

    def leader(self, index: int) -> SimBroker | None:
        state = self._state(index)
        return self.machines[state.leader - 1] if state.leader > 0 else None

    def until_moved(self) -> None:
        """Everything acknowledged has arrived: the leader of the retired partition says so."""
        for _ in range(400):
            self.let_pass(0.1)
            leader = self.leader(RETIRED)
            partition = None if leader is None else self.replica(leader, RETIRED)
            if partition is not None and partition.retirement is not None and is_drained(partition):
                return
        raise Violation(f"not everything is moved: {self._state(RETIRED)}")

    def check_data(self) -> None:
        for number in range(PRODUCERS):
            self.loop.crash(f"producer-{number}")
        for index in (RETIRED, INTO):
            self.loop.crash(f"reader-{index}")
        self.let_pass(1)
        if not self.is_retired():
            raise Violation("it was never retired")
        self.until_moved()
        stored = [self._read(index) for index in (INTO, RETIRED)]
        self.check_places(stored)
        self.check_moved(*stored)
        self._check_replicas()

    def _read(self, index: int) -> list[bytes]:
        if index == RETIRED and self.is_hidden():
            return []  # it was retired before anybody wrote to it: no metadata shows it any more
        reading = read_partition(self.client("checker"), index)
        values: list[bytes] = self.loop.run_until_complete(self.loop.spawn("checker", reading))
        return values

    def check_places(self, stored: Sequence[list[bytes]]) -> None:
        """What readers saw is where they saw it, and what was acknowledged outside the retired part as well."""
        limit = self.limit
        for (index, offset), value in self.history.seen.items():
            if index == RETIRED and offset >= limit:
                raise Violation(f"a reader saw {offset} of a partition that was retired at {limit}")
            _expect(stored, index, offset, value)
        for (index, offset), value in self.history.acknowledged.items():
            if index != RETIRED or offset < limit:
                _expect(stored, index, offset, value)

    @property
    def retirement(self) -> RetirementState:
        retirement = self._state(RETIRED).retirement
        assert retirement is not None
        return retirement

    @property
    def limit(self) -> int:
        return self.retirement.offset

    def check_moved(self, target: list[bytes], source: list[bytes]) -> None:
        if len(source) > self.limit:
            raise Violation(f"{len(source)} records can be read, it was retired at {self.limit}")
        for number in range(PRODUCERS):
            mark = b"%d-" % number
            own = [int(value.split(b"-")[1]) for value in [*source, *target] if value.startswith(mark)]
            if own != sorted(own):
                raise Violation(f"producer {number} was reordered")
            if len(set(own)) != len(own):
                raise Violation(f"something of producer {number} is there twice")
        found = {*source, *target}
        lost = [place for place, value in self.history.acknowledged.items() if value not in found]
        if lost:
            raise Violation(f"lost: {lost}, retired at {self.limit}")

    def moved_count(self) -> int:
        """How many acknowledged records had to be moved."""
        places = self.history.acknowledged
        return sum(index == RETIRED and offset >= self.limit for index, offset in places)


@contextmanager
def takes_nothing(machine: SimBroker, index: int) -> Iterator[None]:
    """As a follower whose log takes nothing for a while: it asks again and again."""
    assert machine.broker is not None
    follower = machine.broker.cluster.fetchers.context.follower

    async def take(partition: Partition, *answered: Any) -> bool:
        return partition.index != index and await Follower.take(follower, partition, *answered)

    follower.take = take  # type: ignore[method-assign]
    try:
        yield
    finally:
        follower.take = Follower.take.__get__(follower)  # type: ignore[method-assign]


def _expect(stored: Sequence[list[bytes]], index: int, offset: int, value: bytes) -> None:
    values = stored[index]
    if offset >= len(values) or values[offset] != value:
        found = values[offset] if offset < len(values) else None
        raise Violation(f"offset {offset} of {index} was {value!r}, now {found!r}")


async def _configure(client: ClusterClient, configs: dict[str, str]) -> None:
    changes = [
        incremental_alter_configs.AlterableConfig(name=name, config_operation=_SET, value=value)
        for name, value in configs.items()
    ]
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=TOPIC, configs=changes
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    while True:
        try:
            answer = await client.ask_any(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
            # Refused where an earlier try was carried out after all.
            if answer.responses[0].error_code in (ErrorCode.NONE, ErrorCode.INVALID_CONFIG):
                return
        except NETWORK_TROUBLE:
            pass
        await asyncio.sleep(0.1)
