"""What a coordinator keeps for one partition of its topic, and what the runtime must know of its kind.

A machine decides and does nothing: it takes in records, one after the other, the same way when they were just decided
as when they are read back, and says what is to be stored. Classic groups are the one kind there is (`groups.state`).
"""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

from penstock.config.broker import BrokerConfig
from penstock.groups.decision import CoordinatorRecord, Decision, KnownTopics, Now, Ticket
from penstock.replication.table import Topic
from penstock.services.topics.plans import WantedTopic

SettingsT = TypeVar("SettingsT")
SettingsT_contra = TypeVar("SettingsT_contra", contravariant=True)
SettingsT_co = TypeVar("SettingsT_co", covariant=True)
MachineT_co = TypeVar("MachineT_co", covariant=True)


class Subject(Protocol):
    """Something that is decided about on its own and has deadlines: a group."""

    id: str
    earliest: float  # a lower bound of its deadlines, in seconds of the loop
    armed_at: float  # the shard's: when it will look here next

    @property
    def size_bytes(self) -> int:
        """About what of it grows and shrinks by what is decided, in memory: a group's members."""


class Machine(Protocol[SettingsT_contra]):
    # What those that it holds take together; the shard adds what decisions change of them.
    subjects_bytes: int
    size_bytes: int  # about what the rest takes in memory

    def apply(
        self, key: bytes | None, value: bytes | None, offset: int = ..., producer_id: int = ...
    ) -> bool:
        """A stored record. False: of a kind that is not known here. DecodeError: damaged; nothing was changed.

        `offset`: -1 when it was just decided, and so comes behind everything that is stored. `producer_id`: of the
        transaction that it belongs to; -1: of none.
        """

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """A control record in the partition: what this producer wrote before counts now, or never."""

    def subjects(self) -> Iterable[Any]: ...

    def holds(self, subject: Any) -> bool:
        """Whether it is still the one of its name."""

    def begin(self, subject: Any, settings: SettingsT_contra, now: Now) -> Decision:
        """It was read; its deadlines begin anew. There may have been decisions about it since."""

    def expire(self, subject: Any, settings: SettingsT_contra, now: Now) -> Decision:
        """Everything that is due. Afterwards its `earliest` says when to look again."""

    def waiting(self, subject: Any) -> Iterable[Ticket]:
        """Whoever waits for a decision about it that is yet to come."""

    def hear_of_topics(
        self, topics: KnownTopics, names: Iterable[str] | None = None
    ) -> Iterator[list[CoordinatorRecord]]:
        """What is to be stored because topics (of these names; any) were made, have grown, or are gone.

        In portions of some 100 records: each is stored before the next is asked for, and much may happen in between.
        """


class CoordinatorKind(Protocol[MachineT_co, SettingsT_co]):
    """What tells one coordinator from another."""

    topic: str  # where its records are
    subjects: str  # what it coordinates, in a word for the log

    def partition_of(self, key: str, partitions: int) -> int: ...

    def machine(self) -> MachineT_co:
        """An empty one."""

    def settings(self, config: BrokerConfig, topic: Topic | None) -> SettingsT_co: ...

    def wanted_topic(self, config: BrokerConfig, brokers: int) -> WantedTopic: ...

    def load_bytes(self, config: BrokerConfig) -> int:
        """How much is read at once."""

    def commit_timeout_ms(self, config: BrokerConfig) -> int:
        """How long other replicas may take to have what is written."""
