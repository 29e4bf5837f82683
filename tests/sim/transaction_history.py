"""What transactional producers were told, what readers saw, and what must hold between the two (invariant 5).

Every value names its transaction: `producer-number-place`. Numbers rise along a transactional id, whoever its producer
is: what a zombie began before it was replaced has a lower number than all its successor begins.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.sim.cluster_clients import Violation


class Value(NamedTuple):
    producer: int
    number: int  # of the transaction
    place: int  # in the transaction and partition

    def encoded(self) -> bytes:
        return b"%d-%d-%d" % self

    @classmethod
    def decoded(cls, data: bytes) -> "Value":
        return cls(*map(int, data.split(b"-")))


class Transaction:
    def __init__(self, producer: int, number: int) -> None:
        self.producer = producer
        self.number = number
        self.acknowledged: dict[int, int] = {}  # how many values, by partition
        self.has_offsets = False
        self.may_commit = False  # its producer has asked for it
        self.outcome: bool | None = None  # what its producer was told: committed or not

    def __repr__(self) -> str:
        return f"transaction {self.producer}-{self.number} (told: {self.outcome}, asked: {self.may_commit})"


class TransactionHistory:
    def __init__(self) -> None:
        self.transactions: dict[tuple[int, int], Transaction] = {}
        self.latest: dict[int, str] = {}  # the process that is to have the transactional id
        self.told: dict[bool, int] = {True: 0, False: 0}
        self._shown: dict[tuple[int, int], Value] = {}  # (partition, offset): to who reads what is committed
        self._raw: dict[tuple[int, int], bytes] = {}
        self._offsets: dict[int, int] = {}

    def begin(self, producer: int) -> Transaction:
        number = sum(1 for key in self.transactions if key[0] == producer)
        transaction = self.transactions[producer, number] = Transaction(producer, number)
        return transaction

    def ended(self, transaction: Transaction, *, committed: bool) -> None:
        transaction.outcome = committed
        self.told[committed] += 1

    # -- as it is seen ---------------------------------------------------------------------------------------

    def wrote(self, partition: int, offset: int, value: bytes) -> None:
        """In the log, of whatever transaction."""
        before = self._raw.setdefault((partition, offset), value)
        if before != value:
            raise Violation(f"offset {offset} of {partition} showed {before!r}, now {value!r}")

    def showed(self, partition: int, offset: int, data: bytes) -> None:
        """To who reads only what is committed."""
        value = Value.decoded(data)
        before = self._shown.setdefault((partition, offset), value)
        if before != value:
            raise Violation(f"offset {offset} of {partition} showed {before}, now {value}")
        self._check_committed(value.producer, value.number, f"offset {offset} of {partition}")

    def _check_committed(self, producer: int, number: int, what: str) -> None:
        transaction = self.transactions[producer, number]
        if not transaction.may_commit or transaction.outcome is False:
            raise Violation(f"{what} shows an aborted {transaction}")

    def fetched_offset(self, producer: int, offset: int) -> None:
        """Of the group whose offsets are committed with the producer's transactions."""
        before = self._offsets.setdefault(producer, offset)
        if offset < before:
            raise Violation(f"the offset of producer {producer} went back from {before} to {offset}")
        self._offsets[producer] = offset
        if offset >= 0:
            self._check_committed(producer, offset, "a committed offset")

    # -- the end ---------------------------------------------------------------------------------------------

    def check(self, stored: Mapping[int, Mapping[int, bytes]], offsets: Mapping[int, int]) -> None:
        """What is to be read in the end, by partition and offset, and the groups' offsets by producer."""
        for (partition, offset), value in self._shown.items():
            found = stored[partition].get(offset)
            if found != value.encoded():
                raise Violation(f"offset {offset} of {partition} was {value}, now {found!r}")
        visible: dict[tuple[int, int], dict[int, list[int]]] = {}
        for partition, values in stored.items():
            self._check_order(partition, list(values.values()))
            for data in values.values():
                value = Value.decoded(data)
                by_partition = visible.setdefault((value.producer, value.number), {})
                by_partition.setdefault(partition, []).append(value.place)
        for key, transaction in self.transactions.items():
            self._check_whole(transaction, visible.get(key, {}))
        for producer, offset in offsets.items():
            self.fetched_offset(producer, offset)
            wanted = [
                number
                for who, number in visible
                if who == producer and self.transactions[who, number].has_offsets
            ]
            if offset != max(wanted, default=-1):
                raise Violation(f"producer {producer} has committed offset {offset}, and outputs of {wanted}")

    def _check_order(self, partition: int, values: Sequence[bytes]) -> None:
        last: dict[int, Value] = {}
        for data in values:
            value = Value.decoded(data)
            before = last.get(value.producer)
            if before is not None and before >= value:
                raise Violation(f"partition {partition} has {value} behind {before}")
            last[value.producer] = value

    def _check_whole(self, transaction: Transaction, visible: Mapping[int, Sequence[int]]) -> None:
        if transaction.outcome and not visible:
            raise Violation(f"{transaction} is lost")
        if not visible:
            return
        if not transaction.may_commit or transaction.outcome is False:
            raise Violation(f"an aborted {transaction} is to be seen")
        for partition, count in transaction.acknowledged.items():
            if list(visible.get(partition, ())) != list(range(count)):
                raise Violation(f"half of {transaction}: {visible.get(partition)} of {count} in {partition}")
        if visible.keys() != transaction.acknowledged.keys():
            raise Violation(f"{transaction} shows what was not acknowledged: {visible}")
