"""Elections by log end: where nobody can lead who surely has everything, brokers are asked how long their logs are.

Which partitions wait for that, and which replica leads then, `election` says. Asking goes on beside the other
elections: a broker that does not answer holds up nobody else.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from penstock.controller.election import NOBODY, ReplicaEnd, Rules, lead_by_log_end, needs_log_ends
from penstock.controller.image_queries import Rewrite, checks_of, states_of, world_of
from penstock.coordination.image import ClusterImage, Topic
from penstock.coordination.metadata import MetadataStore, PartitionKey
from penstock.coordination.nodes import PartitionState
from penstock.coordination.registration import BrokerRegistration
from penstock.coordination.tree import Check
from penstock.core.errors import PenstockError
from penstock.core.wake import Wake

logger = logging.getLogger(__name__)

# Between two looks at partitions that wait for the ends of logs, at first and at most.
_RETRY_SECONDS = 0.1
_COMPARED_SECONDS_MAX = 1.6
# How long a replica that is there may keep to itself how long its log is, before an unclean election does without it.
_LOG_END_SECONDS = 10.0

# Of one broker's logs.
LogEnds = Mapping[PartitionKey, ReplicaEnd]
AskLogEnds = Callable[[BrokerRegistration, Sequence[PartitionKey]], Awaitable[LogEnds]]


class LogEndElection:
    def __init__(
        self,
        metadata: MetadataStore,
        is_active: Callable[[], bool],
        rules: Callable[[Topic], Rules],
        ask_log_ends: AskLogEnds,
        write: Callable[[Rewrite], Awaitable[bool]],
    ) -> None:
        """`write` is the controller's way to write what it decides; False: not this time."""
        self._metadata = metadata
        self._is_active = is_active
        self._rules = rules
        self._ask_log_ends = ask_log_ends
        self._write = write
        self._wake = Wake()
        self._compared_since: dict[PartitionKey, float] = {}  # partitions whose suspects' logs decide

    def wake(self) -> None:
        """Some partition may have come to wait for the ends of its replicas' logs."""
        self._wake.now()

    async def run(self) -> None:
        """Until cancelled."""
        rest_s: float | None = None
        while True:
            await self._wake.rest(rest_s)
            waiting = self._waiting_for_ends() if self._is_active() else {}
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
            if state.leader == NOBODY and needs_log_ends(state, world, self._rules(topic))
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
                await self._write(choose)

    def _gives_up(
        self, image: ClusterImage, key: PartitionKey, known: Collection[int], *, all_told: bool
    ) -> bool:
        """Whether an election does without a replica that is away, or was asked for long, and once more just now."""
        topic = image.topics_by_id[key[0]]
        if not self._rules(topic).unclean:
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
