"""The controller: one broker that decides for all, as one queue of events over pure functions.

It looks at everything whenever the brokers change, and writes what `election.react` says: nothing is remembered between
two looks but the tree itself, so a new controller goes on where the last one was stopped. Its writes are guarded by the
controller's epoch, by each partition's version, and by the life of every broker it makes a leader: a broker that
crashed and came back between the look and the write makes the write fail, and the next look sees it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress

from penstock.config.broker import BrokerConfig
from penstock.config.live import LiveConfig
from penstock.config.topic import TopicConfig
from penstock.controller.election import NOBODY, ReplicaEnd, Rules, lead_by_log_end, needs_log_ends, react
from penstock.controller.healer import AskDisk, Healer
from penstock.controller.image_queries import Rewrite, checks_of, moves_on, states_of, world_of
from penstock.controller.in_sync import WantedIsr, decide
from penstock.controller.moves import is_moving
from penstock.controller.retirer import AskLeader, Retirer
from penstock.controller.retiring import RETIRE_TO
from penstock.coordination import nodes
from penstock.coordination.election import stand
from penstock.coordination.image import ClusterImage, ImageDelta, Topic
from penstock.coordination.metadata import MetadataStore, PartitionKey
from penstock.coordination.nodes import BrokerRegistration, PartitionState
from penstock.coordination.tree import Check, ConflictError, CoordinationError, Operation, SessionExpiredError
from penstock.core.clock import Clock
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, PenstockError
from penstock.core.tasks import endless

logger = logging.getLogger(__name__)

# How long a controller that was turned down by the store, or that waits for the ends of logs, rests.
_RETRY_SECONDS = 0.1
# Between two looks at partitions that wait for replicas which are away.
_COMPARED_SECONDS_MAX = 1.6
# How long a replica that is there may keep to itself how long its log is, before an unclean election does without it.
_LOG_END_SECONDS = 10.0

# Of one broker's logs.
LogEnds = Mapping[PartitionKey, ReplicaEnd]
AskLogEnds = Callable[[BrokerRegistration, Sequence[PartitionKey]], Awaitable[LogEnds]]


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
        self._ask_log_ends = ask_log_ends
        self._mandate: Check | None = None
        self._work = asyncio.Event()
        self._rules: dict[tuple[tuple[str, str], ...], Rules] = {}
        self._comparing = asyncio.Event()
        self._compared_since: dict[PartitionKey, float] = {}  # partitions whose suspects' logs decide
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
            tasks.create_task(endless(self._compare), name="suspects")
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
        self._comparing.set()

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

    # -- the ends of suspects' logs --------------------------------------------------------------------------

    async def _compare(self) -> None:
        """Beside the elections: a suspect that does not answer holds up nobody else."""
        rest_s: float | None = None
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await self._comparing.wait()
            self._comparing.clear()
            waiting = self._waiting_for_ends() if self.is_active else {}
            now = asyncio.get_running_loop().time()
            before = self._compared_since
            self._compared_since = {key: before.get(key, now) for key in waiting}
            if not waiting:
                rest_s = None
                continue
            await self._compare_suspects(waiting)
            await asyncio.sleep(_RETRY_SECONDS)
            # Look again whether all are led now; not so often where they wait for a broker that is away for long.
            is_new = rest_s is None or before.keys() != waiting.keys()
            rest_s = _RETRY_SECONDS if is_new else min(2 * (rest_s or 0), _COMPARED_SECONDS_MAX)

    def _waiting_for_ends(self) -> dict[PartitionKey, PartitionState]:
        image = self._metadata.image
        world = world_of(image)
        return {
            (topic.id, number): state
            for topic in image.stored_topics()
            for number, state in enumerate(topic.partitions)
            if state.leader == NOBODY and needs_log_ends(state, world, self.rules(topic))
        }

    async def _compare_suspects(self, waiting: Mapping[PartitionKey, PartitionState]) -> None:
        """Not the suspects alone: where none of them is complete, the others count as well."""
        image = self._metadata.image
        asked = _asked(image, waiting)
        checks = checks_of(image, asked)
        ends: dict[int, LogEnds] = {}

        def choose(current: ClusterImage) -> tuple[dict[PartitionKey, PartitionState], list[Check]]:
            states = states_of(current)
            chosen = {}
            for key, state in waiting.items():
                if states.get(key) == state:
                    known = _told_of(key, state, ends)
                    unclean = self._gives_up(current, key, known, all_told=len(ends) == len(asked))
                    if (after := lead_by_log_end(state, known, unclean=unclean)) is not None:
                        chosen[key] = after
            return chosen, checks

        told: asyncio.Queue[tuple[int, LogEnds]] = asyncio.Queue()
        async with asyncio.TaskGroup() as tasks:
            for broker, wanted in asked.items():
                tasks.create_task(self._ask_replicas(image.brokers[broker], wanted, told))
            for _ in asked:
                broker, ends[broker] = await told.get()
                await self._tried(lambda: self._metadata.rewrite_partitions(choose))

    def _gives_up(
        self, image: ClusterImage, key: PartitionKey, known: Collection[int], *, all_told: bool
    ) -> bool:
        """Whether an election does without a replica that is away, or was asked for long, and once more just now."""
        topic = image.topics_by_id[key[0]]
        if not self.rules(topic).unclean:
            return False
        waited_s = asyncio.get_running_loop().time() - self._compared_since[key]
        silent = [
            broker
            for broker in topic.partitions[key[1]].replicas
            if broker in image.brokers and broker not in known
        ]
        return not silent or (waited_s > _LOG_END_SECONDS and all_told)

    async def ask_replicas(
        self, states: Mapping[PartitionKey, PartitionState]
    ) -> dict[PartitionKey, dict[int, ReplicaEnd]]:
        """What those have of these partitions that are there and can tell."""
        image = self._metadata.image
        asked = _asked(image, states)
        told: asyncio.Queue[tuple[int, LogEnds]] = asyncio.Queue()
        async with asyncio.TaskGroup() as tasks:
            for broker, wanted in asked.items():
                tasks.create_task(self._ask_replicas(image.brokers[broker], wanted, told))
        ends = dict(told.get_nowait() for _ in asked)
        return {key: _told_of(key, state, ends) for key, state in states.items()}

    async def _ask_replicas(
        self,
        broker: BrokerRegistration,
        wanted: Sequence[PartitionKey],
        told: "asyncio.Queue[tuple[int, LogEnds]]",
    ) -> None:
        ends: LogEnds = {}
        try:
            ends = await self._ask_log_ends(broker, wanted)
        except (OSError, TimeoutError, KeyError, PenstockError) as error:
            logger.info("broker %d does not tell how long its logs are: %s", broker.id, error)
        await told.put((broker.id, ends))

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


def _asked(
    image: ClusterImage, states: Mapping[PartitionKey, PartitionState]
) -> dict[int, list[PartitionKey]]:
    """Of which of these partitions each broker that is there, and settled, has a replica."""
    unsettled = world_of(image).unsettled
    asked: dict[int, list[PartitionKey]] = {}
    for key, state in states.items():
        for replica in state.replicas:
            if replica in image.brokers and replica not in unsettled:
                asked.setdefault(replica, []).append(key)
    return asked


def _told_of(key: PartitionKey, state: PartitionState, ends: Mapping[int, LogEnds]) -> dict[int, ReplicaEnd]:
    return {replica: ends[replica][key] for replica in state.replicas if key in ends.get(replica, {})}


def _is_undecided(states: Sequence[PartitionState], live: Collection[int]) -> bool:
    """Whether a new or changed topic has something to decide: somebody in sync is not there."""
    return any(
        state.leader not in live or state.eligible or any(broker not in live for broker in state.isr)
        for state in dict.fromkeys(states)
    )
