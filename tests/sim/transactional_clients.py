"""Transactional producers of both kinds in a simulated cluster.

The first kind (librdkafka, kafka-python) adds partitions before it writes to them and keeps its epoch. The second
(Java, franz-go) leaves it to leaders, and every end raises the epoch. Who is not sure what became of a batch aborts and
has its epoch raised; the first kind also where it is not sure of any other request: one that comes late would count
for the next transaction, which is the hole that the second kind was made to close.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NoReturn

from tests.sim.cluster_clients import PASSING, ClusterClient, Violation
from tests.sim.group_client import GroupClient
from tests.sim.messages import NETWORK_TROUBLE, PARTITIONS, TOPIC, batch_of, produce_request
from tests.sim.transaction_history import Transaction, TransactionHistory, Value

from penstock.core.error_codes import ErrorCode
from penstock.records.builder import BatchOptions
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    txn_offset_commit,
)

TRANSACTIONAL = 1  # the key type of FindCoordinator
_TIMEOUTS_MS = (1_500, 3_000, 8_000)
_DIES = 0.008  # at each request
_IMPATIENT = 0.2
ELSEWHERE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
# Brokers hear of a topic one after the other.
_UNHEARD = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED}
_BUSY = {ErrorCode.CONCURRENT_TRANSACTIONS}
_FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
_ABORTABLE = {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE}


class Fenced(Exception):  # noqa: N818 - what happened to the producer
    """Another has its transactional id, or its transaction took too long."""


class Died(Exception):  # noqa: N818 - the same
    """The process ends here."""


class Hopeless(Exception):  # noqa: N818 - the same
    """The transaction can only be aborted."""


def transactional_id(number: int) -> str:
    return f"worker-{number}"


def group_of(number: int) -> str:
    return f"inputs-{number}"


class Producer:
    """One process with a transactional id; it begins anew when it dies by itself, until it is replaced."""

    def __init__(
        self,
        history: TransactionHistory,
        name: str,
        number: int,
        rng: Random,
        client: Callable[[], ClusterClient],
        coordinator: Callable[[str, int], GroupClient],
        *,
        is_second: bool,
    ) -> None:
        self._history = history
        self._name = name
        self._number = number
        self._rng = rng
        self._new_client = client
        self._new_coordinator = coordinator
        self._second = is_second
        self._id = transactional_id(number)
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = {}
        self._unsure = False  # whether a request is still under way, for all we know

    async def live(self) -> None:
        while True:
            try:
                await self._begin()
                while True:
                    await self._transact()
                    await asyncio.sleep(self._rng.choice([0.0, 0.02, 0.1, 0.3]))
            except (Fenced, Died):
                if self._history.latest[self._number] != self._name:
                    return
                await asyncio.sleep(self._rng.choice([0.0, 0.1, 0.5]))

    def _connect(self) -> None:
        """Whoever is given up may still be answered: not what is asked next."""
        self._leaders = [self._new_client() for _ in range(PARTITIONS)]
        self._coordinator = self._new_coordinator(self._id, TRANSACTIONAL)
        self._group = self._new_coordinator(group_of(self._number), 0)

    async def _begin(self) -> None:
        self._connect()
        self._producer = (-1, -1)
        await self._init()

    async def _init(self) -> None:
        """With the producer id and epoch that it has, if it has: what is under way of it counts no more."""
        producer_id, epoch = self._producer
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._rng.choice(_TIMEOUTS_MS),
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        version = 5 if self._second else 4
        answer, code, _ = await self._ask(self._coordinator, ApiKey.INIT_PRODUCER_ID, request, version)
        if code is not ErrorCode.NONE:
            self._refused("InitProducerId", code)
        self._take(answer)
        self._unsure = False

    def _take(self, answer: Any) -> None:
        self._producer = (answer.producer_id, answer.producer_epoch)
        self._sequences = {}

    # -- one transaction -------------------------------------------------------------------------------------

    async def _transact(self) -> None:
        rng, transaction = self._rng, self._history.begin(self._number)
        partitions = rng.sample(range(PARTITIONS), rng.randint(1, PARTITIONS))
        with_offsets, commits = rng.random() < 0.4, rng.random() < 0.7
        try:
            if not self._second:
                await self._add(partitions)
            works = [self._write(transaction, partition) for partition in partitions]
            if with_offsets:
                works.append(self._send_offsets(transaction))
            await self._together(works)
            await asyncio.sleep(rng.choice([0.0, 0.0, 0.0, 0.05, 0.2, 2.0]))
            await self._end(transaction, committed=commits)
        except Hopeless:
            self._connect()
            self._unsure = True
            await self._end(transaction, committed=False)
        except Fenced:
            # It may have taken too long: whoever still has the id may go on with the next epoch.
            self._connect()
            await self._init()
            return
        if self._unsure and not self._second:
            await self._init()
        self._unsure = False

    async def _together(self, works: list[Coroutine[Any, Any, None]]) -> None:
        """Some have no patience: what is under way then arrives, or does not, while the transaction is aborted."""
        patience_s = self._rng.choice([0.01, 0.05, 0.3]) if self._rng.random() < _IMPATIENT else None
        try:
            try:
                async with asyncio.timeout(patience_s), asyncio.TaskGroup() as tasks:
                    for work in works:
                        tasks.create_task(work)
            except TimeoutError:
                raise Hopeless from None
        except* (Violation, Fenced, Died, Hopeless) as group:
            found = sorted(group.exceptions, key=lambda error: not isinstance(error, Violation))
            raise found[0] from None

    async def _add(self, partitions: list[int]) -> None:
        topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name=TOPIC, partitions=partitions)
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[topic],
        )
        _, code, _ = await self._ask(self._coordinator, ApiKey.ADD_PARTITIONS_TO_TXN, request, 3)
        if code is not ErrorCode.NONE:
            self._refused("AddPartitionsToTxn", code)

    async def _write(self, transaction: Transaction, partition: int) -> None:
        rng, written = self._rng, 0
        for _ in range(rng.randint(1, 2)):
            count = rng.randint(1, 3)
            values = [Value(self._number, transaction.number, written + i).encoded() for i in range(count)]
            await self._produce(partition, values)
            written += count
            transaction.acknowledged[partition] = written
            await asyncio.sleep(rng.choice([0.0, 0.0, 0.05, 0.3]))

    async def _produce(self, partition: int, values: list[bytes]) -> None:
        sequence, (producer_id, epoch) = self._sequences.get(partition, 0), self._producer
        options = BatchOptions(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
        request = produce_request(partition, batch_of(values, options), transactional_id=self._id)
        client, version = self._leaders[partition], 12 if self._second else 9
        while True:
            try:
                answered = await self._fatefully(
                    client.ask_leader, partition, ApiKey.PRODUCE, request, version
                )
            except NETWORK_TROUBLE:
                await asyncio.sleep(0.05)
                continue
            code = ErrorCode(answered.responses[0].partition_responses[0].error_code)
            if code is ErrorCode.NONE:
                self._sequences[partition] = sequence + len(values)
                return
            if code in _ABORTABLE:
                raise Hopeless
            if code not in PASSING and not (self._second and code in _BUSY):
                self._refused("Produce", code)
            client.forget(partition)
            await asyncio.sleep(0.05)

    async def _send_offsets(self, transaction: Transaction) -> None:
        producer_id, epoch = self._producer
        given = {
            "transactional_id": self._id,
            "group_id": group_of(self._number),
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }
        if not self._second:
            adding = add_offsets_to_txn.AddOffsetsToTxnRequest(**given)
            coordinator = self._new_coordinator(self._id, TRANSACTIONAL)
            _, code, _ = await self._ask(coordinator, ApiKey.ADD_OFFSETS_TO_TXN, adding, 3)
            if code is not ErrorCode.NONE:
                self._refused("AddOffsetsToTxn", code)
        wanted = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=transaction.number
        )
        topic = txn_offset_commit.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[wanted])
        request = txn_offset_commit.TxnOffsetCommitRequest(topics=[topic], **given)
        version = 5 if self._second else 3
        _, code, _ = await self._ask(self._group, ApiKey.TXN_OFFSET_COMMIT, request, version)
        if code in _ABORTABLE:
            raise Hopeless
        if code is not ErrorCode.NONE:
            self._refused("TxnOffsetCommit", code)
        transaction.has_offsets = True

    async def _end(self, transaction: Transaction, *, committed: bool) -> None:
        transaction.may_commit |= committed
        producer_id, epoch = self._producer
        request = end_txn.EndTxnRequest(
            transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, committed=committed
        )
        version = 5 if self._second else 3
        answer, code, was_sure = await self._ask(self._coordinator, ApiKey.END_TXN, request, version)
        if code is ErrorCode.NONE:
            self._history.ended(transaction, committed=committed)
            if self._second:
                if (answer.producer_id, answer.producer_epoch) == self._producer:
                    raise Violation("the end of a transaction did not raise the epoch")
                self._take(answer)
            return
        if was_sure:  # it was never tried before
            self._history.ended(transaction, committed=False)
        if code in _ABORTABLE:  # it had taken too long
            raise Died
        self._refused("EndTxn", code)

    # -- asking ----------------------------------------------------------------------------------------------

    async def _ask(
        self, client: GroupClient, api: ApiKey, request: Any, version: int
    ) -> tuple[Any, ErrorCode, bool]:
        """Until it is answered: the answer, its code, and whether it is that of the only try."""
        was_sure = True
        while True:
            try:
                answer = await self._fatefully(client.call, api, request, version)
            except NETWORK_TROUBLE:
                self._unsure, was_sure = True, False
                await asyncio.sleep(0.05)
                continue
            code = _code_of(answer)
            if code not in ELSEWHERE | _UNHEARD | _BUSY:
                return answer, code, was_sure
            if code not in _BUSY:
                was_sure = False
                client.coordinator = None
            await asyncio.sleep(self._rng.choice([0.02, 0.05]))

    async def _fatefully(self, ask: Callable[..., Any], *request: Any) -> Any:
        """The process may die before the request, while it is under way, and behind it."""
        if self._rng.random() >= _DIES:
            return await ask(*request)
        match self._rng.choice(["before", "meanwhile", "behind"]):
            case "meanwhile":
                asyncio.get_running_loop().create_task(ask(*request)).add_done_callback(_forget)
            case "behind":
                await ask(*request)
        raise Died

    def _refused(self, what: str, code: ErrorCode) -> NoReturn:
        if code in _FENCED:
            raise Fenced
        raise Violation(f"producer {self._number} was told {code.name} by {what}")


def _forget(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()


def _code_of(answer: Any) -> ErrorCode:
    """The first that is not NONE."""
    codes = [answer.error_code] if hasattr(answer, "error_code") else []
    for topic in getattr(answer, "topics", ()):
        codes += [partition.error_code for partition in topic.partitions]
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        codes += [partition.partition_error_code for partition in topic.results_by_partition]
    return next((ErrorCode(code) for code in codes if code), ErrorCode.NONE)
