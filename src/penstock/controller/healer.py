"""The controller's care for what is not urgent: replicas of lost brokers, drained and new ones, preferred leaders.

Beside the elections, which must not wait for it: it asks brokers how full their disks are. What is under way is in the
tree alone (`adding`, `removing`, the setting `penstock.broker.draining`), so the next controller goes on with it; only
for how long a broker has been gone it counts anew.

    gone longer than `penstock.heal.grace.ms`, or unregistered    its replicas are rebuilt elsewhere
    draining                                                      the same, while it still serves them
    `penstock.replicas.to`, of a topic made while some were gone  it gets the others, now that there are brokers
    no replica at all                                             it gets its share of everybody's

It stops, and says why (`Outlook.stopped`), when too many are gone at once or nobody has room.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.config.live import LiveConfig
from penstock.controller.healing import (
    REPLICAS_TO,
    Fleet,
    States,
    Targets,
    complete,
    fill,
    mass_loss,
    settled_in,
    stranded,
    vacate,
    without_wish,
)
from penstock.controller.image_queries import checks_of, draining_in, places_of, states_of, world_of
from penstock.controller.moves import begin, is_moving, prefer
from penstock.coordination.image import ClusterImage, Topic
from penstock.coordination.metadata import MetadataStore, PartitionKey
from penstock.coordination.nodes import PartitionState
from penstock.coordination.registration import BrokerRegistration
from penstock.coordination.tree import Check
from penstock.core.errors import PenstockError
from penstock.core.wake import Wake

logger = logging.getLogger(__name__)

# How long it rests when it could not write, and when a disk was too full.
_RETRY_SECONDS = 1.0
_FULL_SECONDS = 30.0
# As in Kafka: leaders given back at once.
_ELECTIONS_MAX = 1000

# (total, usable) bytes.
AskDisk = Callable[[BrokerRegistration], Awaitable[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the controller is about, for those who ask how the cluster is."""

    moving: int = 0  # partitions whose replicas are on their way
    waiting: int = 0  # those that will be, when these are done
    stopped: str = ""  # why nothing more is begun; empty while all is well
    # Partitions that keep a replica on a broker that is lost or leaves: nobody else can take it.
    stranded: int = 0

    @property
    def trouble(self) -> str:
        """Why replicas stay where they should not; empty while all is well."""
        said = [f"healing has stopped: {self.stopped}"] if self.stopped else []
        if self.stranded:
            said.append(
                f"{self.stranded} partition{'s keep' if self.stranded > 1 else ' keeps'} a replica on a broker that is "
                "lost or leaves, since every other broker or machine has one already: add a broker"
            )
        return "; ".join(said)


class Healer:
    def __init__(
        self,
        metadata: MetadataStore,
        config: LiveConfig,
        is_active: Callable[[], bool],
        ask_disk: AskDisk,
    ) -> None:
        self._metadata = metadata
        self._config = config
        self._is_active = is_active
        self._ask_disk = ask_disk
        self._wake = Wake()
        self._gone_since: dict[int, float] = {}
        self._balance_at: float | None = None
        self.outlook = Outlook()
        self._by_hand = 0  # who is moving replicas

    @contextmanager
    def moving_by_hand(self) -> Iterator[None]:
        """Somebody moves replicas: no partition gets more of them until it is known which are as they were meant."""
        self._by_hand += 1
        try:
            yield
        finally:
            self._by_hand -= 1

    def wake(self) -> None:
        self._wake.now()

    async def run(self) -> None:
        """Until cancelled."""
        rest_s: float | None = None
        while True:
            await self._wake.rest(rest_s)
            try:
                rest_s = await self._round()
            except PenstockError as error:
                logger.info("the controller's plans could not be written: %s", error)
                rest_s = _RETRY_SECONDS

    async def _round(self) -> float | None:
        """Look at everything once; returns after how long to look again, if nothing happens before."""
        image = self._metadata.image
        if not self._is_active() or len(image.lives) < 2:
            self._gone_since.clear()
            self._balance_at = None
            self.outlook = Outlook()
            return None
        now = asyncio.get_running_loop().time()
        dues = [self._note_gone(image, now), await self._care(image, now), await self._balance(now)]
        return min((due for due in dues if due is not None), default=None)

    # -- who is gone -----------------------------------------------------------------------------------------

    def _note_gone(self, image: ClusterImage, now: float) -> float | None:
        """Keep count of who is gone; returns after how long the next grace ends."""
        gone = _gone(image)
        self._gone_since = {broker: self._gone_since.get(broker, now) for broker in gone}
        ends = [since + self._grace_s - now for since in self._gone_since.values()]
        return min((end for end in ends if end > 0), default=None)

    @property
    def _grace_s(self) -> float:
        return self._config.now.penstock_heal_grace_ms / 1000

    def _lost(self, image: ClusterImage, now: float) -> list[int]:
        """Gone for too long, or unregistered for good."""
        return [
            broker
            for broker, since in self._gone_since.items()
            if broker not in image.lives or now - since >= self._grace_s
        ]

    # -- replicas --------------------------------------------------------------------------------------------

    async def _care(self, image: ClusterImage, now: float) -> float | None:
        lost, draining = self._lost(image, now), draining_in(image)
        gone = [broker for broker in self._gone_since if broker in image.lives]
        stopped = ""
        if lost and mass_loss(gone, image.lives, self._config.now.penstock_heal_lost_percent_max):
            stopped = f"{len(gone)} of {len(image.lives)} brokers are gone, so nothing is rebuilt"
            lost = []
        leaving = {*lost, *draining}
        await self._forget_wishes(image)
        states = states_of(image)
        able = _able(image, draining)
        targets, left = self._mended(image, states, leaving, able)
        if not targets and not left and not gone and self._config.now.penstock_fill_empty_brokers:
            targets = _filling(states, Fleet(able, places_of(image)))
        rest_s = None
        if targets:
            roomy = await self._roomy(
                image, {broker for target in targets.values() for broker in target} & {*able}
            )
            if not roomy.issuperset(able):
                fewer = [broker_info for broker_info in able if broker_info in roomy]
                wished, (targets, left) = targets, self._mended(image, states, leaving, fewer)
                rest_s = _FULL_SECONDS
                if leaving and any(targets.get(key) is None for key in wished):
                    stopped = stopped or "the disks of those that are left are too full to take more replicas"
            if await self._begin(targets, states) < len(targets):
                rest_s = _RETRY_SECONDS
        self._look_out(stopped, left, stranded(states, leaving, Fleet(able, places_of(image))))
        return rest_s

    async def _forget_wishes(self, image: ClusterImage) -> None:
        """Those that have come true."""
        for topic in image.stored_topics():
            if REPLICAS_TO in topic.configs and _is_complete(topic):
                await self._metadata.alter_topic_configs(topic.name, without_wish, topic.id)

    def _mended(
        self, image: ClusterImage, states: States, leaving: Collection[int], takers: Collection[int]
    ) -> tuple[Targets, int]:
        """Where replicas should be that are lost, leave or were never made, and how many partitions wait for it."""
        fleet, limit = Fleet(takers, places_of(image)), self._config.now.penstock_moves_max
        targets, left = vacate(states, leaving, fleet, limit)
        if not targets and not left and not self._by_hand:
            targets = complete(states, _wanted(image), fleet, limit)
        return targets, left

    async def _roomy(self, image: ClusterImage, brokers: Collection[int]) -> set[int]:
        """Those of all that may be given replicas, without the ones that should get some and have no room."""
        roomy = set(image.brokers)
        for broker in sorted(brokers):
            try:
                total, usable = await self._ask_disk(image.brokers[broker])
            except (OSError, TimeoutError, PenstockError, KeyError) as error:
                logger.info("broker %d does not tell how full its disk is: %s", broker, error)
                roomy.discard(broker)
                continue
            if total > 0 and usable * 100 < total * self._config.now.penstock_disk_free_percent_min:
                roomy.discard(broker)
        return roomy

    async def _begin(self, targets: Targets, planned: Mapping[PartitionKey, PartitionState]) -> int:
        """How many were begun: what changed meanwhile, or cannot be now, is planned again."""
        changed: dict[PartitionKey, PartitionState] = {}

        def change(image: ClusterImage) -> tuple[dict[PartitionKey, PartitionState], list[Check]]:
            now = states_of(image)
            changed.clear()
            for key, target in targets.items():
                if now.get(key) == planned[key]:
                    changed[key] = begin(planned[key], target)
            return changed, checks_of(image, {state.leader for state in changed.values()})

        if targets:
            await self._metadata.rewrite_partitions(change)
            logger.info("replicas of %d partitions begin to move", len(changed))
        return len(changed)

    def _look_out(self, stopped: str, waiting: int, stranded_count: int) -> None:
        moving = sum(is_moving(state) for state in states_of(self._metadata.image).values())
        if stopped and stopped != self.outlook.stopped:
            logger.warning("healing has stopped: %s", stopped)
        elif self.outlook.stopped and not stopped:
            logger.info("healing goes on")
        self.outlook = Outlook(moving, waiting, stopped, stranded_count)

    # -- leaders ---------------------------------------------------------------------------------------------

    async def _balance(self, now: float) -> float | None:
        """Now and then, partitions go back to be led by their first replicas."""
        if not self._config.now.auto_leader_rebalance_enable:
            return None
        interval_s = self._config.now.leader_imbalance_check_interval_seconds
        if self._balance_at is None:
            self._balance_at = now + interval_s
        if now >= self._balance_at:
            self._balance_at = now + interval_s
            await self._metadata.rewrite_partitions(_preferred)
        return self._balance_at - now


def _preferred(image: ClusterImage) -> tuple[dict[PartitionKey, PartitionState], list[Check]]:
    world, draining = world_of(image), draining_in(image)
    changed: dict[PartitionKey, PartitionState] = {}
    for key, state in states_of(image).items():
        after = prefer(state, world)
        if after is not state and after.leader not in draining and len(changed) < _ELECTIONS_MAX:
            changed[key] = after
    return changed, checks_of(image, {state.leader for state in changed.values()})


def _gone(image: ClusterImage) -> list[int]:
    replicas = {broker for state in states_of(image).values() for broker in state.target}
    return sorted((replicas | set(image.lives)) - set(image.brokers))


def _able(image: ClusterImage, draining: Collection[int]) -> list[int]:
    """Who may be given replicas."""
    return [
        broker
        for broker in sorted(image.brokers)
        if broker not in draining and not image.brokers[broker].stopping
    ]


def _wanted(image: ClusterImage) -> dict[PartitionKey, int]:
    """How many replicas partitions should have that were made while brokers were missing."""
    wanted: dict[PartitionKey, int] = {}
    for topic in image.stored_topics():
        if REPLICAS_TO in topic.configs:
            replicas, settled = int(topic.configs[REPLICAS_TO]), settled_in(topic.configs)
            numbers = (number for number in range(len(topic.partitions)) if number not in settled)
            wanted.update(((topic.id, number), replicas) for number in numbers)
    return wanted


def _is_complete(topic: Topic) -> bool:
    wanted, settled = int(topic.configs[REPLICAS_TO]), settled_in(topic.configs)
    return all(
        number in settled or (len(state.replicas) >= wanted and not is_moving(state))
        for number, state in enumerate(topic.partitions)
    )


def _filling(states: Mapping[PartitionKey, PartitionState], fleet: Fleet) -> Targets:
    if any(is_moving(state) for state in states.values()):
        return {}  # one plan at a time
    used = {replica for state in states.values() for replica in state.replicas}
    return fill(states, [taker for taker in fleet.takers if taker not in used], fleet)
