"""The controller: one broker that decides for all, as one queue of events over pure functions.

It looks at everything whenever the brokers change, and writes what `election.react` says: nothing is remembered between
two looks but the tree itself, so a new controller goes on where the last one was stopped. Its writes are guarded by the
controller's epoch, by each partition's version, and by the life of every broker it makes a leader: a broker that
crashed and came back between the look and the write makes the write fail, and the next look sees it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

from penstock.config.broker import BrokerConfig
from penstock.config.live import LiveConfig
from penstock.config.topic import TopicConfig
from penstock.controller.election import NOBODY, Rules, react
from penstock.controller.healer import AskDisk, Healer
from penstock.controller.image_queries import Rewrite, checks_of, moves_on, world_of
from penstock.controller.in_sync import WantedIsr, decide
from penstock.controller.log_end_election import AskLogEnds, LogEndElection
from penstock.controller.moves import is_moving
from penstock.controller.retirer import AskLeader, Retirer
from penstock.controller.retiring import RETIRE_TO
from penstock.coordination import nodes
from penstock.coordination.election import stand
from penstock.coordination.image import ClusterImage, ImageDelta, Topic
from penstock.coordination.metadata import MetadataStore, PartitionKey
from penstock.coordination.nodes import PartitionState
from penstock.coordination.tree import Check, ConflictError, CoordinationError, Operation, SessionExpiredError
from penstock.core.clock import Clock
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, PenstockError
from penstock.core.tasks import endless

logger = logging.getLogger(__name__)

# How long a controller that was turned down by the store rests.
_RETRY_SECONDS = 0.1


class Controller:
    def __init__(
        self,
        metadata: MetadataStore,
        broker: int,
        config: LiveConfig,
        ask_log_ends: AskLogEnds,
        ask_disk: AskDisk,
        clock: Clock,
        ask_retiring: AskLeader,
    ) -> None:
        self._metadata = metadata
        self._broker = broker
        self._config = config
        self._mandate: Check | None = None
        self._work = asyncio.Event()
        self._rules: dict[tuple[tuple[str, str], ...], Rules] = {}
        self.log_ends = LogEndElection(
            metadata, lambda: self.is_active, self.rules, ask_log_ends, self._try_to_write
        )
        self.care = Healer(metadata, config, lambda: self.is_active, ask_disk)
        self.retirer = Retirer(metadata, config, lambda: self.is_active, clock, ask_retiring)
        metadata.guard = self._guard

    @property
    def is_active(self) -> bool:
        return self._mandate is not None

    @property
    def epoch(self) -> int | None:
        """Higher with every controller that is elected; None while this is not the one."""
        return None if self._mandate is None else self._mandate.version

    def settings_changed(self, _config: BrokerConfig) -> None:
        self._rules.clear()
        self.wake()

    def image_changed(self, delta: ImageDelta) -> None:
        image = self._metadata.image
        if (
            delta.brokers
            or delta.broker_configs  # a broker may have to be drained
            or any(_is_undecided(topic.partitions, image.brokers) for topic in delta.topics)
        ):
            self.wake()
        elif any(RETIRE_TO in topic.configs for topic in delta.topics):
            self.retirer.wake()

    def wake(self) -> None:
        """Something changed that may need a decision."""
        self._work.set()
        self.care.wake()
        self.retirer.wake()

    def resign(self) -> None:
        """The session is over, or another one was elected."""
        if self._mandate is not None:
            logger.info("broker %d is no longer controller", self._broker)
        self._mandate = None

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(endless(self._decide), name="elections")
            tasks.create_task(endless(self.log_ends.run), name="suspects")
            tasks.create_task(endless(self.care.run), name="care")
            tasks.create_task(endless(self.retirer.run), name="retiring")

    async def _decide(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            if not await self.step():
                await asyncio.sleep(_RETRY_SECONDS)
                self._work.set()

    async def step(self) -> bool:
        """Stand where nobody is controller, then decide what there is to decide; False: to be tried again soon."""
        return await self._tried(self._step)

    async def _step(self) -> None:
        if self._mandate is not None and self._metadata.image.controller != self._broker:
            self.resign()
        image = self._metadata.image
        if (
            self._mandate is None
            and image.controller in (NOBODY, self._broker)
            and self._broker in image.brokers
        ):
            await self._stand()
        if self._mandate is not None:
            await self._look()

    async def _tried(self, work: Callable[[], Awaitable[None]]) -> bool:
        try:
            await work()
        except SessionExpiredError:
            self.resign()  # the next session wakes us
        except ConflictError as error:
            if error.path == nodes.CONTROLLER_EPOCH:
                self.resign()
            return False
        except PenstockError as error:
            logger.warning("the controller could not write: %s", error)
            return False
        return True

    async def _try_to_write(self, change: Rewrite) -> bool:
        return await self._tried(lambda: self._metadata.rewrite_partitions(change))

    async def _stand(self) -> None:
        self._mandate = await stand(self._metadata.tree, self._broker)
        if self._mandate is not None:
            logger.info("broker %d is controller, version %d", self._broker, self._mandate.version)
            await self._metadata.load()  # nothing that others wrote may be missed
            await self._metadata.sweep_orphans()
            self.care.wake()
            self.retirer.wake()

    def _guard(self) -> Sequence[Operation]:
        if self._mandate is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        return (self._mandate,)

    # -- looking ---------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        lives = {broker: life for broker, life in self._metadata.image.lives.items() if not life.settled}
        await self._metadata.rewrite_partitions(self._reactions)
        await self._go_on_with_moves()
        for broker, life in lives.items():
            # Whoever began anew meanwhile has another version, and is dealt with in the next look.
            await self._metadata.settle(broker, life)
        self.log_ends.wake()

    def _moved(self, count: int) -> None:
        if count:
            logger.info("replicas of %d partitions have moved", count)
            self.care.wake()  # others may wait for their turn

    async def _go_on_with_moves(self) -> None:
        grown: set[PartitionKey] = set()

        def change(image: ClusterImage) -> tuple[dict[PartitionKey, PartitionState], list[Check]]:
            changed, checks = moves_on(image)
            grown.update(key for key, state in changed.items() if not is_moving(state))
            return changed, checks

        await self._metadata.rewrite_partitions(change)
        self._moved(len(grown))

    def _reactions(self, image: ClusterImage) -> tuple[dict[PartitionKey, PartitionState], list[Check]]:
        world = world_of(image)
        changed: dict[PartitionKey, PartitionState] = {}
        for topic in image.stored_topics():
            rules = self.rules(topic)
            for number, state in enumerate(topic.partitions):
                after = react(state, world, rules)
                if after is not state:
                    changed[topic.id, number] = after
        return changed, checks_of(image, {state.leader for state in changed.values()})

    def rules(self, topic: Topic) -> Rules:
        key = tuple(topic.configs.items())
        known = self._rules.get(key)
        if known is None:
            config = TopicConfig.in_force(topic.configs, self._config.now)
            known = Rules(config.min_insync_replicas, config.unclean_leader_election_enable)
            self._rules[key] = known
        return known

    # -- what leaders ask for --------------------------------------------------------------------------------

    async def alter_isr(
        self, leader: int, leader_broker_epoch: int, wanted: Sequence[WantedIsr]
    ) -> list[PartitionState | ErrorCode]:
        """What became of each; ApiError when none can be. A conflict leaves open that others changed some."""
        results: list[PartitionState | ErrorCode] = []
        moved: set[PartitionKey] = set()

        def change(image: ClusterImage) -> tuple[dict[PartitionKey, PartitionState], list[Check]]:
            self._guard()
            registered = image.brokers.get(leader)
            if registered is None or registered.epoch != leader_broker_epoch:
                raise ApiError(ErrorCode.STALE_BROKER_EPOCH)
            results.clear()
            changed: dict[PartitionKey, PartitionState] = {}
            members: set[int] = set()
            for broker in wanted:
                topic = image.topics_by_id.get(broker.topic_id)
                result = (
                    decide(image, leader, broker, self.rules(topic)) if topic else ErrorCode.UNKNOWN_TOPIC_ID
                )
                results.append(result)
                if isinstance(result, PartitionState):
                    changed[broker.topic_id, broker.partition] = result
                    members.update(result.isr)
                    if topic and is_moving(topic.partitions[broker.partition]) and not is_moving(result):
                        moved.add((broker.topic_id, broker.partition))
            return changed, checks_of(image, members)

        await self.rewrite(change)
        self._moved(len(moved))
        if any(isinstance(result, PartitionState) and is_moving(result) for result in results):
            self.wake()  # it may go on now
        return results

    async def rewrite(self, change: Rewrite) -> None:
        """As the metadata's, for requests: whatever is in the way becomes the error that they are answered with."""
        try:
            await self._metadata.rewrite_partitions(change)
        except ConflictError as error:
            if error.path == nodes.CONTROLLER_EPOCH:
                self.resign()
                raise ApiError(ErrorCode.NOT_CONTROLLER) from error
            self.wake()
            raise ApiError(ErrorCode.INVALID_UPDATE_VERSION) from error
        except CoordinationError as error:
            raise ApiError(ErrorCode.NOT_CONTROLLER, str(error)) from error


def _is_undecided(states: Sequence[PartitionState], live: Collection[int]) -> bool:
    """Whether a new or changed topic has something to decide: somebody in sync is not there."""
    return any(
        state.leader not in live or state.eligible or any(broker not in live for broker in state.isr)
        for state in dict.fromkeys(states)
    )
