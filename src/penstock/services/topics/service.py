"""Creating, growing and deleting topics: decided against the metadata, written to it, then made true on this disk.

Writers take turns, so what was decided still holds when it is written, and of two that create the same topic one wins
and the other is told. An answer leaves only once the partitions can be used (or are gone). A request that runs out of
its own time is answered so, but what it began is finished: half of a change helps nobody. One whose turn has not come
by then, or whose client has left, is not begun: nobody waits for it, and others would.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from penstock.config.broker import BrokerConfig
from penstock.controller.image_queries import draining_in, places_of
from penstock.coordination.image import Topic
from penstock.coordination.metadata import MetadataStore, NewTopic
from penstock.coordination.nodes import CONTROLLER_EPOCH, PartitionState
from penstock.coordination.tree import ConflictError, ConnectionLostError, SessionExpiredError
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, PenstockError, StorageError
from penstock.core.internal_topics import INTERNAL_TOPICS
from penstock.core.turns import give_way
from penstock.services.peers.controller_client import ControllerClient
from penstock.services.topics.created import Created, CreatedTopic, create_elsewhere
from penstock.services.topics.deletions import Deletion, TopicReference, choose_topics
from penstock.services.topics.plans import (
    PARTITIONS_PER_REQUEST_MAX,
    TopicPlan,
    TopicPlanner,
    WantedTopic,
    check_partition_total,
    plan_added_partitions,
)

logger = logging.getLogger(__name__)

# Against other processes only versions guard; each lost round is somebody else's progress, so few are enough.
_ROUNDS_MAX = 5

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class MorePartitions:
    count: int
    # The replicas of each added partition, where they are given by hand.
    assignments: Sequence[Sequence[int]] | None = None


Outcome = Mapping[str, ApiError | None]


class TopicService:
    def __init__(
        self,
        metadata: MetadataStore,
        reconcile: Callable[[], Awaitable[None]],
        node_id: int,
        controller: ControllerClient | None = None,
        check_headroom: Callable[[Mapping[int, int]], Awaitable[None]] | None = None,
    ) -> None:
        """With a `controller`, topics are created by whoever is controller.

        `check_headroom` raises ApiError when brokers cannot take so many more partitions each.
        """
        self._controller = controller
        self._check_headroom = check_headroom
        self._metadata = metadata
        self._reconcile = reconcile
        self._node_id = node_id
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting: set[asyncio.Task[Any] | None] = set()  # of these, for their turn

    # -- create ----------------------------------------------------------------------------------------------

    async def create(
        self,
        wanted: Sequence[WantedTopic],
        config: BrokerConfig,
        *,
        timeout_ms: int,
        validate_only: bool = False,
    ) -> Created:
        """What became of each name; names given twice are refused and come last."""
        if self._controller is not None and not self._controller.is_here:
            return await create_elsewhere(self._controller, self._metadata, wanted, config, timeout_ms)
        once, twice = _split([topic.name for topic in wanted])
        topics = [topic for topic in wanted if topic.name in once]
        results: dict[str, CreatedTopic | ApiError] = {}
        try:
            check_partition_total(topics, config)
            results |= await self._within(timeout_ms, self._create(topics, config, validate_only))
        except PenstockError as error:
            return {topic.name: as_api_error(error) for topic in wanted}
        return results | dict.fromkeys(twice, _duplicate())

    async def create_automatically(self, names: Sequence[str], config: BrokerConfig) -> None:
        """Topics that were asked for but do not exist; what cannot be created stays unknown."""
        if len(names) * config.num_partitions > PARTITIONS_PER_REQUEST_MAX:
            logger.warning("%d topics were asked for but are not created: too many at once", len(names))
            return
        wanted = [WantedTopic(name) for name in names if name not in INTERNAL_TOPICS]
        if not wanted:
            return
        refused = [
            (name, result)
            for name, result in (await self.create(wanted, config, timeout_ms=_AUTOMATIC_MS)).items()
            if isinstance(result, ApiError) and result.code is not ErrorCode.TOPIC_ALREADY_EXISTS
        ]
        if refused:  # one line, however many names a client can think of
            name, error = refused[0]
            logger.warning(
                "%d topics were asked for but cannot be created: %s: %s", len(refused), name, error
            )

    async def _create(
        self, topics: Sequence[WantedTopic], config: BrokerConfig, validate_only: bool
    ) -> dict[str, CreatedTopic | ApiError]:
        changed = False
        async with self._in_turn():
            for _ in range(_ROUNDS_MAX):
                results, plans = await self._plan(topics, config)
                await self._check_room(*(plan.partitions for plan in plans))
                if validate_only or not plans:
                    ids = {plan.name: self._metadata.random_id() for plan in plans}
                    break
                wanted = [NewTopic(plan.name, plan.partitions, plan.config.overrides) for plan in plans]
                changed = True  # by us, or by whoever is in our way
                try:
                    ids = {topic.name: topic.id for topic in await self._metadata.create_topics(wanted)}
                    break
                except ConflictError as error:
                    if error.path == CONTROLLER_EPOCH:
                        raise ApiError(ErrorCode.NOT_CONTROLLER) from error
                except ApiError as error:
                    if error.code is ErrorCode.NOT_CONTROLLER:
                        raise
            else:
                raise ApiError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, "too many others create topics at the same time"
                )
        if changed:
            await self._make_true()
        for plan in plans:
            results[plan.name] = CreatedTopic(
                ids[plan.name], len(plan.partitions), plan.replication_factor, plan.config
            )
        return {topic.name: results[topic.name] for topic in topics}

    async def _plan(
        self, topics: Sequence[WantedTopic], config: BrokerConfig
    ) -> tuple[dict[str, CreatedTopic | ApiError], list[TopicPlan]]:
        planner = TopicPlanner(self._metadata.image, config, self._brokers())
        results: dict[str, CreatedTopic | ApiError] = {}
        plans = []
        for number, topic in enumerate(topics):
            await give_way(number)
            try:
                plans.append(planner.plan(topic))
            except ApiError as error:
                results[topic.name] = error.kept()
        return results, plans

    # -- delete ----------------------------------------------------------------------------------------------

    async def delete(self, wanted: Sequence[TopicReference], *, timeout_ms: int) -> list[Deletion]:
        """What became of each; one deletion fails or succeeds apart from the others."""
        try:
            return await self._within(timeout_ms, self._delete(wanted))
        except PenstockError as error:
            failure = as_api_error(error)
            return [Deletion(reference.name, reference.id, failure) for reference in wanted]

    async def _delete(self, wanted: Sequence[TopicReference]) -> list[Deletion]:
        async with self._in_turn():
            results, chosen = choose_topics(wanted, self._metadata.image)
            deleted = []
            for topic in chosen:
                error = None
                try:
                    await self._delete_one(topic)
                    deleted.append(topic.name)
                except PenstockError as failure:
                    error = as_api_error(failure)
                results.append(Deletion(topic.name, topic.id, error))
        if deleted:
            await self._make_true()
        return results

    async def _delete_one(self, topic: Topic) -> None:
        for left in reversed(range(_ROUNDS_MAX)):
            try:
                await self._metadata.delete_topic(topic.name, topic.id)
            except ConflictError as error:
                if error.path == CONTROLLER_EPOCH:
                    raise ApiError(ErrorCode.NOT_CONTROLLER) from error
                if not left:
                    raise
            else:
                return

    # -- more partitions -------------------------------------------------------------------------------------

    async def create_partitions(
        self,
        wanted: Sequence[tuple[str, MorePartitions]],
        *,
        timeout_ms: int,
        validate_only: bool = False,
    ) -> Outcome:
        once, twice = _split([name for name, _ in wanted])
        topics = {name: more for name, more in wanted if name in once}
        try:
            results = await self._within(timeout_ms, self._grow(topics, validate_only))
        except PenstockError as error:
            return {name: as_api_error(error) for name, _ in wanted}
        return results | dict.fromkeys(twice, _duplicate())

    async def _grow(
        self, topics: Mapping[str, MorePartitions], validate_only: bool
    ) -> dict[str, ApiError | None]:
        results: dict[str, ApiError | None] = {}
        async with self._in_turn():
            for number, (name, more) in enumerate(topics.items()):
                await give_way(number)
                try:
                    topic = self._topic(name)
                    added = plan_added_partitions(
                        topic, more.count, more.assignments, self._brokers(), places_of(self._metadata.image)
                    )
                    await self._check_room(added)
                    if not validate_only:
                        await self._metadata.create_partitions(name, added)
                    results[name] = None
                except PenstockError as error:
                    results[name] = as_api_error(error)
        if not validate_only:
            await self._make_true()
        return results

    # -- shared ----------------------------------------------------------------------------------------------

    def _topic(self, name: str) -> Topic:
        topic = self._metadata.image.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def _brokers(self) -> list[int]:
        # A request may come in before this broker's own registration is written.
        image = self._metadata.image
        leaving = {broker.id for broker in image.brokers.values() if broker.stopping}
        known = {*image.brokers, self._node_id} - (leaving - {self._node_id})
        return sorted(known - {*draining_in(image)}) or sorted(known)

    async def _check_room(self, *planned: Sequence[PartitionState]) -> None:
        if self._check_headroom is not None:
            states = chain.from_iterable(planned)
            await self._check_headroom(Counter(chain.from_iterable(state.replicas for state in states)))

    async def _make_true(self) -> None:
        """What is written will come true, at the next start at the latest: a disk that refuses undoes nothing."""
        try:
            await self._reconcile()
        except StorageError:
            logger.exception("this disk could not follow a change of topics")

    async def _within(self, timeout_ms: int, work: Coroutine[Any, Any, _Result]) -> _Result:
        if timeout_ms <= 0:
            work.close()
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        self._waiting.add(task)
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout_ms / 1000)
        finally:
            if task in self._waiting:
                task.cancel()
        if not done:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
        return task.result()

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        async with self._turn:
            self._waiting.discard(asyncio.current_task())
            yield

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._waiting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("a change of topics failed: %s", error)


# As long as a client waits for Metadata, and no client names its own limit for this.
_AUTOMATIC_MS = 30_000


def as_api_error(error: PenstockError) -> ApiError:
    """What a client is told about a failure below."""
    if isinstance(error, ApiError):
        return error.kept()
    if isinstance(error, StorageError):
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    if isinstance(error, ConnectionLostError | SessionExpiredError):
        # Whether it happened is open, which is what this code says.
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, str(error))
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))


def _split(names: Sequence[str]) -> tuple[set[str], list[str]]:
    """Names that are there once, and (in order, once each) those that are there more often."""
    counted = Counter(names)
    return {name for name, count in counted.items() if count == 1}, [
        name for name, count in counted.items() if count > 1
    ]


def _duplicate() -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")


__all__ = ["Created", "CreatedTopic", "MorePartitions", "TopicService", "as_api_error"]
