"""What producers, partition leaders and administrators ask of transactions: finds the id, has it decided.

Every answer leaves once all it may rest on is committed (`services.coordinator.shard`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.internal_topics import OFFSETS_TOPIC
from penstock.core.stats import Durations
from penstock.core.turns import give_way
from penstock.groups.decision import Decision
from penstock.groups.transactions.add_partitions import add_offsets, add_partitions, verify_partitions
from penstock.groups.transactions.end import end
from penstock.groups.transactions.init_producer_id import check_request
from penstock.groups.transactions.layouts import TopicPartition
from penstock.groups.transactions.requests import (
    AddOffsets,
    AddPartitions,
    End,
    InitProducerId,
    InitReply,
)
from penstock.groups.transactions.states import DEAD, ONGOING, PREPARED, TransactionState
from penstock.groups.transactions.subject import TransactionalId
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.transactions.filled_ids import FilledIds
from penstock.services.transactions.kind import TransactionCoordinator, TransactionKind, TransactionShard
from penstock.services.transactions.room import TransactionRoom

# A name that takes more bytes cannot be stored.
_NAME_BYTES_MAX = 0x7FFF
_UNDER_WAY = PREPARED | {ONGOING}


@dataclass(frozen=True, slots=True)
class TransactionListing:
    id: str
    producer_id: int
    state: str
    started_ms: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    state: str
    timeout_ms: int
    started_ms: int
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]  # in their order


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Of the transactional ids that are coordinated here."""

    states: dict[str, int]  # how many are in each, by its name in snake case
    oldest_started_ms: int | None  # None: no transaction is open


class TransactionService:
    def __init__(
        self, runtime: TransactionCoordinator, kind: TransactionKind, ids: FilledIds, image: ClusterImage
    ) -> None:
        self._runtime = runtime
        self._kind = kind
        self._ids = ids
        self._image = image
        self._room = TransactionRoom(runtime)
        # How long partition leaders here wait for coordinators, wherever these are.
        self.verifications = Durations()

    async def run(self) -> None:
        """Until cancelled: producer ids are kept at hand."""
        await self._ids.run()

    # -- producers -------------------------------------------------------------------------------------------

    def init_producer_id(self, request: InitProducerId, later: PendingReply) -> None:
        """Fills `later` with an `InitReply`."""
        # What is wrong with it is so wherever it is coordinated.
        error = check_request(request, self._kind.settings(self._runtime.config.now, None))
        if error is ErrorCode.NONE and not _is_storable(request.transactional_id):
            error = ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            later.fill(InitReply(error))
        # Nearly all need none, but which do is known only by deciding, and then it is too late to wait.
        elif not self._ids.wait(partial(self._init_producer_id, request, later)):
            self._init_producer_id(request, later)

    def _init_producer_id(self, request: InitProducerId, later: PendingReply) -> None:
        shard = self._shard(request.transactional_id, later)
        if shard is None:
            return
        now, machine, settings = shard.now(), shard.state, shard.settings
        subject = machine.find_or_unborn(request.transactional_id)
        if subject.is_unborn and not self._room.has_for_id(now.seconds):
            shard.answer(later, InitReply(ErrorCode.POLICY_VIOLATION))
            return
        shard.decide(subject, lambda: machine.init_producer_id(subject, request, later, settings, now), later)

    def add_partitions(self, transactional_id: str, request: AddPartitions, later: PendingReply) -> None:
        """Fills `later` with one code for all of them."""
        shard = self._shard(transactional_id, later)
        if shard is None:
            return
        now, subject = shard.now(), shard.state.find(transactional_id)
        if not self._has_room(subject, request, now.seconds):
            shard.answer(
                later, ErrorCode.COORDINATOR_NOT_AVAILABLE
            )  # transactions end: there may be room then
            return
        rule = partial(add_partitions, subject, request, later, shard.settings, now)
        self._decide(shard, subject, rule, later)

    def _has_room(self, subject: TransactionalId | None, request: AddPartitions, now: float) -> bool:
        if subject is None:
            return True
        count = len(request.partitions - subject.stored.partitions)
        return not count or self._room.has_for_partitions(count, now)

    def add_offsets(
        self, transactional_id: str, producer_id: int, epoch: int, group_id: str, later: PendingReply
    ) -> None:
        """Fills `later` with a code."""
        shard = self._shard(transactional_id, later)
        if shard is None:
            return
        subject = shard.state.find(transactional_id)
        request = AddOffsets(producer_id, epoch, group_id, self._offsets_partitions())
        rule = partial(add_offsets, subject, request, later, shard.settings, shard.now())
        self._decide(shard, subject, rule, later)

    def _offsets_partitions(self) -> int:
        topic = self._image.topics.get(OFFSETS_TOPIC)
        return (
            self._runtime.config.now.offsets_topic_num_partitions if topic is None else len(topic.partitions)
        )

    def end(self, transactional_id: str, request: End, later: PendingReply) -> None:
        """Fills `later` with an `EndReply`."""
        shard = self._shard(transactional_id, later)
        if shard is None:
            return
        subject = shard.state.find(transactional_id)
        rule = partial(end, subject, request, later, shard.settings, shard.now())
        self._decide(shard, subject, rule, later)

    # -- partition leaders -----------------------------------------------------------------------------------

    def add_or_verify(
        self, transactional_id: str, request: AddPartitions, later: PendingReply, *, verify_only: bool
    ) -> None:
        """Fills `later` with a code for each partition. A refusal is made by `later`, as everywhere."""
        if verify_only:
            shard = self._shard(transactional_id, later)
            if shard is not None:
                subject = shard.state.find(transactional_id)
                self._decide(shard, subject, partial(verify_partitions, subject, request, later), later)
            return
        each = PendingReply(_same, _same)
        self.add_partitions(transactional_id, request, each)
        each.subscribe(lambda code: later.fill(dict.fromkeys(request.partitions, code)))

    # -- administrators --------------------------------------------------------------------------------------

    def describe(self, transactional_id: str, later: PendingReply) -> None:
        """Fills `later` with a description; refuses with TRANSACTIONAL_ID_NOT_FOUND where there is no such id."""
        try:
            shard = self._runtime.shard_of(transactional_id)
        except ApiError as error:
            later.refuse(error.code)
            return
        subject = shard.state.find(transactional_id)
        if subject is None or subject.state is DEAD:
            shard.answer_refused(later, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        else:
            shard.answer(later, _described(subject))

    async def list(self) -> list[TransactionListing]:
        """Every transactional id here; ApiError while some are not known yet. Others have their turn in between."""
        found: list[TransactionListing] = []
        for shard in list(self._runtime.shards()):
            shard.check_listed()
            for subject in list(shard.state.subjects()):
                await give_way(len(found))
                stored = subject.stored
                if stored.state is not DEAD:
                    found.append(
                        TransactionListing(
                            subject.id, stored.producer_id, stored.state.value, stored.started_ms
                        )
                    )
        return found

    def under_way(self) -> "UnderWay":
        """May be asked from a thread."""
        states = {state.name.lower(): 0 for state in TransactionState if state is not DEAD}
        oldest_ms: int | None = None
        for shard in self._runtime.begun():
            for subject in list(shard.state.subjects()):
                stored = subject.stored
                if stored.state is DEAD:
                    continue
                states[stored.state.name.lower()] += 1
                if stored.state in _UNDER_WAY:
                    oldest_ms = stored.started_ms if oldest_ms is None else min(oldest_ms, stored.started_ms)
        return UnderWay(states, oldest_ms)

    def count(self) -> int:
        return sum(1 for shard in self._runtime.shards() for _ in shard.state.subjects())

    # -- finding and deciding --------------------------------------------------------------------------------

    def _shard(self, transactional_id: str, later: PendingReply) -> TransactionShard | None:
        if not transactional_id:
            later.refuse(ErrorCode.INVALID_REQUEST)
            return None
        try:
            shard = self._runtime.shard_of(transactional_id)
        except ApiError as error:
            later.refuse(error.code)
            return None
        if not shard.may_store():  # too few replicas are in sync
            later.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return None
        return shard

    def _decide(
        self,
        shard: TransactionShard,
        subject: TransactionalId | None,
        rule: Callable[[], Decision],
        later: PendingReply,
    ) -> None:
        if subject is not None:
            shard.decide(subject, rule, later)
            return
        for waiting, reply in rule().replies:  # nothing to store of one that is not known
            shard.answer(waiting, reply)


def _same(code: ErrorCode) -> ErrorCode:
    return code


def _is_storable(name: str) -> bool:
    return len(name) <= _NAME_BYTES_MAX // 4 or len(name.encode()) <= _NAME_BYTES_MAX


def _described(subject: TransactionalId) -> TransactionDescription:
    stored = subject.stored
    # As in Kafka: of one that ends those that have no marker yet.
    partitions = subject.unmarked if stored.state in PREPARED else stored.partitions
    return TransactionDescription(
        stored.state.value,
        stored.timeout_ms,
        stored.started_ms,
        stored.producer_id,
        stored.epoch,
        tuple(sorted(partitions)),
    )
