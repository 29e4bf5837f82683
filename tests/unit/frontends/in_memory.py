"""A whole broker on files and metadata in memory, asked through its handlers: requests and answers pass the codecs."""

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from penstock.config.broker import BrokerConfig
from penstock.coordination.memory import MemoryStore, MemoryTree
from penstock.coordination.metadata import NewTopic
from penstock.coordination.nodes import PartitionState
from penstock.core.lease import Work
from penstock.core.session import NO_BROKER, Session
from penstock.frontends.kafka.fetch_sessions import FetchSession
from penstock.frontends.kafka.registry import REGISTRY, Call
from penstock.records.batch import read_header
from penstock.replication.partition import Partition
from penstock.server.broker import Broker
from penstock.server.seams import Seams
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.fetching.found import FoundInTopic
from penstock.testing.mem_files import MemFiles
from penstock.wire.kafka.fetch import FetchRequest

NOW_MS = 1_700_000_000_000

Answered = Callable[[list[FoundInTopic], FetchSession | None], None]


class _Outcome:
    def __init__(self, answered: Answered) -> None:
        self._answered = answered
        self.session: FetchSession | None = None

    def answered(self, topics: list[FoundInTopic]) -> None:
        self._answered(topics, self.session)


class StandingClock:
    def now_ms(self) -> int:
        return NOW_MS


class Machine:
    """Disk and metadata, which outlive the brokers started on them."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.settings = {"log.dirs": "/data", "listeners": "PLAINTEXT://127.0.0.1:0", **(settings or {})}
        self.files = MemFiles()
        self.store = MemoryStore()
        self._starts = 0

    @asynccontextmanager
    async def broker(self) -> AsyncIterator["Asked"]:
        """A started broker; after it, the machine is as if the process had been killed."""
        # Each is another process to the store: one that was left behind would register again, against the next one.
        self._starts += 1
        seams = Seams(self.files, StandingClock(), random.Random(self._starts), None)
        tree = await self.store.connect()
        broker = Broker(BrokerConfig.resolve(self.settings), seams, tree)
        await broker.start()
        try:
            yield Asked(broker, tree)
        finally:
            await broker.listeners.close()
            self.files = self.files.kill()


class Asked:
    def __init__(self, broker: Broker, tree: MemoryTree) -> None:
        self.broker = broker
        self.services = broker.services
        self.tree = tree
        self.listener = broker.listeners.all[0].name  # the one that is asked

    async def ask(self, key: int, request: Any, version: int, *, broker: int = NO_BROKER) -> Any:
        """As a client, or as a broker that has introduced itself."""
        api = REGISTRY[key]
        assert api.handler is not None
        sent = api.codec.encode_request(request, version)
        received, end = api.codec.decode_request(memoryview(sent), 0, version)
        assert end == len(sent)
        session = Session(self.listener, "127.0.0.1")
        session.broker = broker
        response = api.handler(self.services, received, Call(version, "tester", session))
        if isinstance(response, PendingReply):
            filled: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            response.subscribe(filled.set_result)
            response = await filled
        if inspect.isawaitable(response):
            response = await response
        if isinstance(response, list):
            response = b"".join(response)
        body = response if isinstance(response, bytes) else api.codec.encode_response(response, version)
        answer, end = api.codec.decode_response(memoryview(body), 0, version)
        assert end == len(body)
        return answer

    async def create(self, name: str, configs: Mapping[str, str] | None = None, partitions: int = 1) -> None:
        state = PartitionState(replicas=(1,), isr=(1,), leader=1)
        await self.broker.metadata.create_topics([NewTopic(name, [state] * partitions, configs or {})])
        await self.broker.hosting.reconcile()

    def fetch(self, request: FetchRequest, version: int, answered: "Answered") -> Callable[[], None]:
        """What Fetch does between its decoding and its encoding; what is returned gives it up."""
        return self.broker.fetches.fetch(request, version, _Outcome(answered))

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.services.table.find(topic, index)

    def append(self, topic: str, batch: bytearray, index: int = 0, *, commit: bool = True) -> int:
        """Store a batch; committed at once, as if it was durable, unless told otherwise."""
        partition = self.partition(topic, index)
        partition.sync_before_ack = not commit
        with partition.lease.take(Work.SYNC) or nullcontext():  # nothing else may commit it
            offset = partition.append(memoryview(batch), read_header(batch), NOW_MS)[0]
        if commit:
            partition.log.synced_end = partition.log.end()
        return offset
