"""TxnOffsetCommit on the shards.

    is the transaction open here? ── yes ────────────────────────────────┐
        │ no                                                             ▼
        └─ hold a guard, ask its coordinator ─▶ still valid? ─▶ check, apply as pending, append, answer

Everything behind the last arrow happens in one turn of the loop: no marker comes in between.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.groups.offsets.commit import Committer, check_transactional_committer, offset_tombstone
from penstock.groups.offsets.pending import pending_bytes
from penstock.groups.records.keys import OffsetKey, encode_offset_key
from penstock.groups.records.offset_value import CommittedOffset, encode_offset_value
from penstock.records.builder import BatchOptions
from penstock.records.relay import RELAY_IDS
from penstock.services.coordinator.group_kind import GroupCoordinator, GroupShard
from penstock.services.coordinator.group_offsets import Entry, is_storable, takes_metadata
from penstock.services.coordinator.group_room import GroupRoom
from penstock.services.coordinator.pending_reply import PendingReply, arrival
from penstock.services.transactions.verifying import TransactionVerifier
from penstock.storage.open_transactions import NONE

Outcome = ErrorCode | list[ErrorCode]  # of all, or of each
_BUMPS_SINCE = 5  # the second protocol: partitions are added by writing to them
_ABORTABLE_SINCE = 4
# The coordinator could not be asked. Clients try again, and need not look for another coordinator of their group.
_NOT_NOW = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


class TransactionalProducer(NamedTuple):
    transactional_id: str
    id: int
    epoch: int


class TransactionalOffsetService:
    def __init__(self, runtime: GroupCoordinator, room: GroupRoom, verifier: TransactionVerifier) -> None:
        self._runtime = runtime
        self._room = room
        self._verifier = verifier

    async def commit(
        self, producer: TransactionalProducer, by: Committer, entries: Callable[[], Sequence[Entry]]
    ) -> Outcome:
        """Keep offsets until the producer's transaction ends; `entries` is asked for them when it is known to be open.

        They must be of the topics there are at that time: who has heard of a change does not look at them again.
        """
        if not by.group_id:
            return ErrorCode.INVALID_GROUP_ID
        try:
            shard = self._runtime.shard_of(by.group_id)
            code = await self._checked(shard, producer, by.version)
            shard.check_active()
        except ApiError as error:
            return error.code
        if code is ErrorCode.NONE and not shard.may_store():
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if code is not ErrorCode.NONE:
            return code
        later = PendingReply(lambda code: code, lambda outcome: outcome)
        self._store(shard, producer, by, entries(), later)
        outcome: Outcome = await arrival(later)
        return outcome

    async def _checked(self, shard: GroupShard, producer: TransactionalProducer, version: int) -> ErrorCode:
        """NONE: its transaction is open, at this moment."""
        if not 0 <= producer.id < RELAY_IDS:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if not _is_open(shard, producer):
            partition, state, bumps = shard.partition, shard.state, version >= _BUMPS_SINCE
            with shard.guards.hold(producer.id, producer.epoch, bumps=bumps) as guard:
                place = partition.topic, partition.index
                told = await self._verifier.verify(*producer, [place], adds=bumps)
                code = told.get(place, ErrorCode.NETWORK_EXCEPTION)
            if code is not ErrorCode.NONE:
                return verification_error(code, version)
            shard.check_active()
            if shard.state is not state:  # loaded anew meanwhile, and nobody held a guard: to be asked again
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if not guard.is_valid:
                return verification_error(ErrorCode.INVALID_TXN_STATE, version)
        shard.flush()  # what is written is what the next line knows of
        shard.check_active()
        if producer.epoch < shard.partition.log.producers.epoch_of(producer.id):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return ErrorCode.NONE

    def _store(
        self,
        shard: GroupShard,
        producer: TransactionalProducer,
        by: Committer,
        entries: Sequence[Entry],
        later: PendingReply,
    ) -> None:
        group_id, state = by.group_id, shard.state
        group = state.groups.get(group_id)
        code = check_transactional_committer(group, by)
        if code is ErrorCode.NONE and group is None:
            code = self._check_new_group(shard, group_id)
        if code is not ErrorCode.NONE:
            shard.answer_refused(later, code)
            return
        transaction = BatchOptions(producer_id=producer.id, producer_epoch=producer.epoch, transactional=True)
        metadata_max, left_bytes = (
            self._runtime.config.now.offset_metadata_max_bytes,
            self._room.left_bytes,
        )
        now_ms, codes = shard.wall_ms(), []
        try:
            for topic, topic_id, partition, offset, leader_epoch, metadata in entries:
                if metadata and not takes_metadata(metadata, metadata_max):
                    codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                    continue
                value = CommittedOffset(offset, leader_epoch, metadata or "", now_ms, topic_id=topic_id)
                named, before_bytes = OffsetKey(group_id, topic, partition), state.size_bytes
                growth = pending_bytes(value) - state.pending.bytes_of(producer.id, named)
                if growth > 0 and not self._room.has_for_offset(growth, left_bytes, shard.now().seconds):
                    codes.append(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
                    continue
                key, encoded = encode_offset_key(*named), encode_offset_value(value)
                if state.stale(named, topic_id):
                    shard.store([offset_tombstone(*named)])
                state.apply(key, encoded, producer_id=producer.id)
                shard.append_applied(key, encoded, now_ms, transaction)
                left_bytes -= state.size_bytes - before_bytes
                codes.append(ErrorCode.NONE)
        except Exception as error:
            shard.fail(error, later)
            return
        shard.answer(later, codes)

    def _check_new_group(self, shard: GroupShard, group_id: str) -> ErrorCode:
        if not is_storable(group_id):
            return ErrorCode.INVALID_GROUP_ID
        if not self._room.has_for_group(shard.now().seconds):
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        return ErrorCode.NONE


def _is_open(shard: GroupShard, producer: TransactionalProducer) -> bool:
    """In this log, in this epoch: whatever ends it will be behind what is appended now."""
    known = shard.partition.log.producers
    return (
        known.transactions.first_offset(producer.id) != NONE and known.epoch_of(producer.id) == producer.epoch
    )


def verification_error(code: ErrorCode, version: int) -> ErrorCode:
    """What the coordinator's refusal is to clients of TxnOffsetCommit in this version."""
    if code in _NOT_NOW:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _BUMPS_SINCE:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # such clients do not know to try that again
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE):
        is_known = version >= _ABORTABLE_SINCE
        return ErrorCode.TRANSACTION_ABORTABLE if is_known else ErrorCode.INVALID_TXN_STATE
    return code
