"""Moves and elections that were asked for, carried out by the controller: what became of each partition.

Messages are Kafka's, word for word: tools show them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from penstock.controller.controller import Controller
from penstock.controller.election import NOBODY, ReplicaEnd, World
from penstock.controller.healing import REPLICAS_TO, with_settled
from penstock.controller.image_queries import checks_of, world_of
from penstock.controller.moves import begin, cancel, elect_unclean, is_moving, prefer
from penstock.controller.placement import check_replicas
from penstock.coordination.image import ClusterImage, Topic
from penstock.coordination.metadata import MetadataStore, PartitionKey
from penstock.coordination.nodes import PartitionState
from penstock.coordination.tree import Check, ConflictError
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import TURN_ITEMS_MAX
from penstock.core.turns import give_way

_ROUNDS_MAX = 5

# A partition as clients name it.
Name = tuple[str, int]
# Where its replicas are to be; None: where they were before they began to move.
Wish = tuple[Name, Sequence[int] | None]
Outcome = ApiError | None
Decide = Callable[[Topic, int, World, Sequence[int] | None], PartitionState]

PREFERRED, UNCLEAN = 0, 1
_UNAVAILABLE = {
    PREFERRED: (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    UNCLEAN: (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "Eligible topic partition leaders are not available.",
    ),
}


class Reassignments:
    def __init__(self, controller: Controller, metadata: MetadataStore) -> None:
        self._controller = controller
        self._metadata = metadata

    async def alter(self, wanted: Sequence[Wish], *, may_change_factor: bool) -> list[Outcome]:
        """Move each partition to these replicas; None takes a move back."""

        def decide(topic: Topic, number: int, world: World, target: Sequence[int] | None) -> PartitionState:
            state = topic.partitions[number]
            if target is None:
                return cancel(state)
            image = self._metadata.image
            check_replicas(target, {*image.brokers, *image.lives}, None)
            if not may_change_factor and len(target) != len(state.replicas) - len(state.adding):
                raise ApiError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"The replication factor is changed from {len(state.replicas) - len(state.adding)} to "
                    f"{len(target)}",
                )
            return begin(state, target)

        topics = self._metadata.image.topics
        meant = {name: topics[name].id for (name, _), _ in wanted if name in topics}
        # Else the healer could bring back what it finds missing, before it is told that this is meant so.
        with self._controller.care.moving_by_hand():
            outcomes = await self._each(
                wanted,
                decide,
                "Unable to find a topic named {topic}.",
                "Unable to find partition {topic}:{partition}.",
            )
            moved: dict[str, set[int]] = {}
            for ((name, number), target), outcome in zip(wanted, outcomes, strict=True):
                if target and outcome is None:
                    moved.setdefault(name, set()).add(number)
            await self._settle(moved, meant)
        self._controller.wake()
        return outcomes

    async def _settle(self, moved: Mapping[str, Collection[int]], meant: Mapping[str, bytes]) -> None:
        """Whoever says where a partition's replicas are to be has said how many; of the others a wish still holds."""
        topics = self._metadata.image.topics
        for name, numbers in sorted(moved.items()):
            settled = partial(with_settled, numbers=numbers)
            for _ in range(_ROUNDS_MAX):
                if name not in topics or REPLICAS_TO not in topics[name].configs:
                    break
                try:
                    await self._metadata.alter_topic_configs(name, settled, meant.get(name))
                except ConflictError:  # somebody else changes the topic
                    continue
                except ApiError:  # it is gone, or another one's name
                    pass
                break

    async def elect(self, wanted: Sequence[Name], kind: int) -> list[Outcome]:
        ends = await self._ends_of(wanted) if kind == UNCLEAN else {}

        def decide(topic: Topic, number: int, world: World, _: Sequence[int] | None) -> PartitionState:
            state = topic.partitions[number]
            if (state.leader == state.replicas[0]) if kind == PREFERRED else state.leader != NOBODY:
                raise ApiError(
                    ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
                )
            told = ends.get((topic.id, number), {})
            after = prefer(state, world) if kind == PREFERRED else elect_unclean(state, world, told)
            if after is state:
                raise ApiError(*_UNAVAILABLE[kind])
            return after

        return await self._each(
            [(name, None) for name in wanted],
            decide,
            "No such topic as {topic}",
            "No such partition as {topic}-{partition}",
        )

    async def _ends_of(self, wanted: Sequence[Name]) -> dict[PartitionKey, dict[int, ReplicaEnd]]:
        """What the replicas of those that nobody leads have: files of some of them may be gone."""
        topics = self._metadata.image.topics
        return await self._controller.log_ends.ask_replicas(
            {
                (topics[name].id, number): state
                for name, number in wanted
                if name in topics and 0 <= number < len(topics[name].partitions)
                if (state := topics[name].partitions[number]).leader == NOBODY
            }
        )

    async def ongoing(self, wanted: Iterable[Name] | None) -> dict[Name, PartitionState]:
        """Of those, or of all there are; others have their turn in between."""
        topics = self._metadata.image.topics
        if wanted is None:
            wanted = (
                (topic.name, number)
                for topic in list(topics.values())
                for number in range(len(topic.partitions))
            )
        found = {}
        for seen, (name, number) in enumerate(wanted):
            await give_way(seen)
            partitions = topics[name].partitions if name in topics else ()
            if 0 <= number < len(partitions) and is_moving(partitions[number]):
                found[name, number] = partitions[number]
        return found

    async def unregister(self, broker: int) -> None:
        """It will not come back: forget it, and let others have its replicas at once. ApiError when it cannot be."""
        image = self._metadata.image
        if broker not in image.lives and broker not in image.brokers:
            raise ApiError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker} is not currently registered"
            )
        if broker in image.brokers:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker {broker} is running: stop it first")
        for topic in image.stored_topics():
            for number, state in enumerate(topic.partitions):
                if broker in (*state.isr, *state.eligible, *state.suspects):
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST,
                        f"Broker {broker} may be the only one that has all of {topic.name}-{number}",
                    )
        await self._metadata.forget_broker(broker, image.lives[broker])
        self._controller.wake()

    async def _each(
        self, wanted: Sequence[Wish], decide: Decide, no_topic: str, no_partition: str
    ) -> list[Outcome]:
        """Decided one by one, written some at a time. Who names a partition twice is answered twice."""
        outcomes: list[Outcome] = []
        for at in range(0, len(wanted), TURN_ITEMS_MAX):
            await give_way(at)
            try:
                some = wanted[at : at + TURN_ITEMS_MAX]
                outcomes += await self._some(some, decide, no_topic, no_partition)
            except ApiError as error:
                if not at:
                    raise
                # What was written before it stays, so only the rest is refused.
                return outcomes + [error] * (len(wanted) - at)
        return outcomes

    async def _some(
        self, wanted: Sequence[Wish], decide: Decide, no_topic: str, no_partition: str
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []

        def change(image: ClusterImage) -> tuple[dict[PartitionKey, PartitionState], list[Check]]:
            world = world_of(image)
            changed: dict[PartitionKey, PartitionState] = {}
            outcomes.clear()
            for (name, number), target in wanted:
                try:
                    topic = image.topics.get(name)
                    if topic is None or not 0 <= number < len(topic.partitions):
                        text = no_topic if topic is None else no_partition
                        raise ApiError(
                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text.format(topic=name, partition=number)
                        )
                    after = decide(topic, number, world, target)
                    if after is not topic.partitions[number]:
                        changed[topic.id, number] = after
                    outcomes.append(None)
                except ApiError as error:
                    outcomes.append(error.kept())
            return changed, checks_of(image, {state.leader for state in changed.values()})

        for _ in range(_ROUNDS_MAX):
            try:
                await self._controller.rewrite(change)
            except ApiError as error:
                if error.code is not ErrorCode.INVALID_UPDATE_VERSION:
                    raise
            else:
                return outcomes
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "too many others change the same partitions")
