"""Who is measured: each broker as it comes, and each with the other's idea of durability.

Kafka acknowledges from the page cache, so it stands beside Penstock with `penstock.ack.after=written`. Penstock's
default on one node syncs first, so it stands beside Kafka with `flush.messages=1`. Both are topic settings: one
process per broker serves all its variants. What only the broker itself can be told makes a process of its own.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tools.peers import ApacheKafka, BrokerProcess, PenstockPeer

from benchmarks import topics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType

Kept = TypeVar("Kept")
PEERS: dict[str, Callable[[Mapping[str, str], Path | None], BrokerProcess]] = {
    "penstock": lambda settings, work_dir: PenstockPeer(settings, work_dir=work_dir),
    "kafka": lambda settings, work_dir: ApacheKafka(settings, work_dir=work_dir),
}


@dataclass(frozen=True)
class Contender:
    """A broker together with the settings of a variant: of its topics, or of the broker."""

    key: str
    peer: str
    topic_config: Mapping[str, str] = field(default_factory=dict)
    broker_config: Mapping[str, str] = field(default_factory=dict)


PENSTOCK = Contender("penstock", "penstock", {"penstock.ack.after": "written"})
PENSTOCK_SYNCED = Contender("penstock-synced", "penstock")
KAFKA = Contender("kafka", "kafka")
KAFKA_FLUSH = Contender("kafka-flush", "kafka", {"flush.messages": "1"})
PLAIN = (PENSTOCK, KAFKA)
ALL_VARIANTS = (PENSTOCK, KAFKA, PENSTOCK_SYNCED, KAFKA_FLUSH)


class Bench:
    """The brokers of one benchmark run: started when first needed, stopped at the end.

    The broker that is not being measured stays up, idle: stopping it by a signal would cost it its controller
    session, and an idle JVM takes about a hundredth of a core.
    """

    def __init__(self, peers: tuple[str, ...], base_dir: Path, *, scale: float = 1.0) -> None:
        self.peers = peers
        self.base_dir = base_dir
        self.scale = scale
        self._stack = ExitStack()
        self._running: dict[tuple[str, ...], BrokerProcess] = {}
        self._names = itertools.count(1)
        self._shared: dict[str, Any] = {}

    def broker(self, contender: Contender) -> BrokerProcess:
        """The running broker that serves this contender."""
        kind = (contender.peer, *sorted(f"{name}={value}" for name, value in contender.broker_config.items()))
        if kind not in self._running:
            self._running[kind] = self._stack.enter_context(self.new_broker(contender))
        return self._running[kind]

    def new_broker(self, contender: Contender) -> BrokerProcess:
        """A broker of its own, not started, in a directory below the run's."""
        work_dir = self.base_dir / f"{contender.peer}-{next(self._names)}"
        return PEERS[contender.peer](contender.broker_config, work_dir)

    def new_topic(self, contender: Contender, *, partitions: int = 1) -> str:
        name = f"bench-{next(self._names)}"
        broker = self.broker(contender)
        topics.create_topic(broker.bootstrap, name, partitions=partitions, config=contender.topic_config)
        return name

    def delete_topic(self, contender: Contender, name: str) -> None:
        topics.delete_topic(self.broker(contender).bootstrap, name)

    def shared(self, name: str, make: Callable[[], AbstractContextManager[Kept]]) -> Kept:
        """Something else that the run keeps up from its first use to the end."""
        if name not in self._shared:
            self._shared[name] = self._stack.enter_context(make())
        kept: Kept = self._shared[name]
        return kept

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
