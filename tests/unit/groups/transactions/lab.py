"""A coordinator with nothing around it: requests go in by hand, time passes when told, markers are kept for later."""

from dataclasses import replace
from itertools import count
from typing import Any

from penstock.core.error_codes import ErrorCode
from penstock.groups.decision import CoordinatorRecord, Decision, Now
from penstock.groups.transactions.add_partitions import add_offsets, add_partitions, verify_partitions
from penstock.groups.transactions.end import end
from penstock.groups.transactions.ending import marked
from penstock.groups.transactions.layouts import NO_EPOCH, NO_ID, StoredTransaction, TopicPartition
from penstock.groups.transactions.machine import TransactionMachine
from penstock.groups.transactions.requests import (
    AddOffsets,
    AddPartitions,
    End,
    EndReply,
    InitProducerId,
    InitReply,
    MarkersDue,
    SpareIds,
    TransactionSettings,
)
from penstock.groups.transactions.states import EMPTY, TransactionState
from penstock.groups.transactions.subject import TransactionalId

P0, P1, P2 = (TopicPartition("t", index) for index in range(3))
ID = 7
FRESH = 100  # the first of the ids that are at hand
TIMEOUT_MS = 60_000
IDLE_MS = 7 * 24 * 3600 * 1000
MARKERS = "markers"


class Lab:
    def __init__(self, **settings: Any) -> None:
        self.machine = TransactionMachine()
        self.settings = replace(
            TransactionSettings(
                level=2,
                timeout_max_ms=900_000,
                idle_ms=IDLE_MS,
                record_bytes_max=1_000_000,
                ids=SpareIds(range(FRESH, FRESH + 50)),
                markers=MARKERS,
            ),
            **settings,
        )
        self.wall_ms = 1_000_000
        self.records: list[CoordinatorRecord] = []
        self.due: list[MarkersDue] = []
        self._numbers = count(1)

    @property
    def now(self) -> Now:
        return Now(self.wall_ms / 1000, self.wall_ms)

    def put(
        self,
        state: TransactionState = EMPTY,
        *partitions: TopicPartition,
        last_epoch: int = NO_EPOCH,
        **fields: Any,
    ) -> TransactionalId:
        """An id in a state as somebody's records left it; by default producer 7, epoch 3, second version."""
        stored = replace(
            StoredTransaction(ID, 3, TIMEOUT_MS, state, frozenset(partitions), self.wall_ms, self.wall_ms),
            **{"client_version": 2, **fields},
        )
        subject = TransactionalId.restored("x", stored)
        subject.last_epoch = last_epoch
        self.machine._add(subject)
        return subject

    @property
    def subject(self) -> TransactionalId:
        found = self.machine.find("x")
        assert found is not None
        return found

    def told(self) -> tuple[TransactionState, int, int]:
        stored = self.subject.stored
        return stored.state, stored.producer_id, stored.epoch

    def take(self, decision: Decision, ticket: str = "") -> Any:
        self.records += decision.records
        self.due += [reply for to, reply in decision.replies if to == MARKERS]
        mine = [reply for to, reply in decision.replies if to == ticket != MARKERS]
        assert len(mine) == (1 if ticket else 0)
        return mine[0] if ticket else None

    # -- requests ------------------------------------------------------------------------------------------

    def init(self, producer_id: int = NO_ID, epoch: int = NO_EPOCH, **fields: Any) -> InitReply:
        request = InitProducerId("x", fields.pop("timeout_ms", TIMEOUT_MS), producer_id, epoch, **fields)
        subject = self.machine.find_or_unborn("x")
        return self.take(self.machine.init_producer_id(subject, request, "t", self.settings, self.now), "t")

    def add(
        self, *partitions: TopicPartition, producer_id: int = ID, epoch: int = 3, client_version: int = 0
    ) -> ErrorCode:
        request = AddPartitions(producer_id, epoch, frozenset(partitions), client_version)
        return self.take(add_partitions(self.machine.find("x"), request, "t", self.settings, self.now), "t")

    def add_offsets(self, group_id: str, producer_id: int = ID, epoch: int = 3) -> ErrorCode:
        request = AddOffsets(producer_id, epoch, group_id, 50)
        return self.take(add_offsets(self.machine.find("x"), request, "t", self.settings, self.now), "t")

    def verify(
        self, *partitions: TopicPartition, producer_id: int = ID, epoch: int = 3
    ) -> dict[TopicPartition, ErrorCode]:
        request = AddPartitions(producer_id, epoch, frozenset(partitions))
        decision = verify_partitions(self.machine.find("x"), request, "t")
        assert not decision.records
        return self.take(decision, "t")

    def end(self, *, committed: bool, version: int = 2, producer_id: int = ID, epoch: int = 3) -> EndReply:
        request = End(producer_id, epoch, committed, version)
        return self.take(end(self.machine.find("x"), request, "t", self.settings, self.now), "t")

    # -- what else happens ---------------------------------------------------------------------------------

    def mark(self, *partitions: TopicPartition) -> None:
        """The oldest markers that are due are written, all or those of some partitions."""
        due = self.due[0]
        if not partitions or set(partitions) >= self.subject.unmarked:
            self.due.pop(0)
        self.take(marked(self.subject, due, partitions or due.partitions, self.settings, self.now))

    def pass_ms(self, milliseconds: int) -> None:
        end_ms = self.wall_ms + milliseconds
        while True:
            subject = self.machine.find("x")
            if subject is None or subject.earliest * 1000 > end_ms:
                break
            self.wall_ms = max(self.wall_ms, round(subject.earliest * 1000))
            self.take(self.machine.expire(subject, self.settings, self.now))
        self.wall_ms = end_ms

    def reload(self) -> None:
        """From what was stored, in full."""
        self.machine = TransactionMachine()
        self.due.clear()
        for key, value in self.records:
            assert self.machine.apply(key, value)
        for subject in list(self.machine.subjects()):
            self.take(self.machine.begin(subject, self.settings, self.now))
