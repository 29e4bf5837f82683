"""One broker that is killed at some file operation, starts again, is written to, and then loses power.

What a start finds after a kill may be known to the page cache alone. If it goes by that (this topic is gone, this
directory is that partition's, the last stop was clean), what is acknowledged afterwards hangs on something that a power
cut takes back. So whatever the operation was: everything acknowledged is there in the end, what was gone once stays
gone, and no offset is given twice.
"""

import asyncio
import copy
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.sim.cluster_clients import Violation
from tests.sim.journal_store import JournalStore
from tests.sim.messages import NETWORK_TROUBLE, idempotent
from tests.sim.start_fuse import STORE, Fuse

from penstock.config.broker import BrokerConfig
from penstock.coordination.nodes import Removed
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import StorageError
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.reader import Record, read_all
from penstock.server.broker import Broker
from penstock.server.seams import Seams
from penstock.services.hosting.log_opening import first_epoch
from penstock.services.topics.deletions import TopicReference
from penstock.services.topics.plans import WantedTopic
from penstock.services.topics.service import MorePartitions
from penstock.storage.layout import LOG, partition_dir
from penstock.testing.mem_disk import Disk
from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_clock import SimClock
from penstock.testing.sim_failures import SimulationError
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import produce

HOST, PORT = "broker", 9092
DATA = Path("/srv/penstock/data")  # none of it is there at first
SETTINGS = {
    "listeners": f"PLAINTEXT://{HOST}:{PORT}",
    "log.dirs": str(DATA),
    "penstock.idle.poll.us": "0",
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.dedupe.buffer.size": str(24 * 1000),
}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1",
    "file.delete.delay.ms": "10",
    "internal.segment.bytes": "200",
}
WIDE = 8  # partitions that are laid out at once
DEAD_KEY = b"dead"
ROBBED = "robbed"  # of this topic somebody takes files; it is written to by one idempotent producer
_SETTLE_SECONDS = 120


class Place(NamedTuple):
    """A partition. One that was removed and made again is another one: it begins with a later epoch."""

    topic_id: bytes
    index: int
    first_epoch: int


class Told:
    """What clients know."""

    def __init__(self) -> None:
        self.acknowledged: dict[Place, dict[int, bytes]] = {}
        self.keys: dict[
            Place, dict[bytes, tuple[int, bytes | None]]
        ] = {}  # of compacted topics: the last of each
        self.given: dict[tuple[bytes, int], int] = {}  # the highest offset
        self.created: set[bytes] = set()
        self.may_go: set[bytes] = set()
        self.may_shrink: set[bytes] = set()
        self.gone: set[Place] = set()
        self.sequences: dict[Place, int] = {}  # the next one of an idempotent producer
        self.lost_power = False  # since it was last looked at
        self.sent = 0


class Prepared(NamedTuple):
    """A disk to begin with, and what was told of it."""

    disk: Disk
    told: Told


class StartStory:
    def __init__(self, loop: SimLoop, prepared: Prepared | None = None) -> None:
        prepared = copy.deepcopy(prepared) if prepared else Prepared(Disk(), Told())
        self.loop = loop
        self.rng = loop.random("story")
        self.files = MemFiles(loop.seed, disk=prepared.disk)
        self.files.make_dirs(STORE.parent)
        self.told = prepared.told
        self._disk = prepared.disk
        self._broker: Broker | None = None
        self._clock = SimClock(loop)

    @property
    def broker(self) -> Broker:
        assert self._broker is not None
        return self._broker

    # -- processes ---------------------------------------------------------------------------------------------

    def start(self, fuse: Fuse | None = None) -> None:
        """Returns when it serves, or the fuse has blown."""
        task = self.loop.spawn(HOST, self._serve())
        self._run(task, fuse)

    def _run(self, task: "asyncio.Task[Any]", fuse: Fuse | None) -> None:
        try:
            self.loop.run_until(lambda: task.done() or (fuse is not None and fuse.is_deadly))
            if fuse is None or not fuse.is_deadly:
                task.result()
        except SimulationError:
            if fuse is None or not fuse.is_deadly:
                raise

    async def _serve(self) -> None:
        """As `server.run` does, and whoever starts it again when it could not."""
        seams = Seams(self.files, self._clock, random.Random(self.rng.random()), None, has_sockets=False)
        while self._broker is None:
            with suppress(StorageError):
                self.files.make_dirs(DATA)
                store = JournalStore(self.files, STORE)
                config = BrokerConfig.resolve(SETTINGS)
                broker = Broker(config, seams, await store.connect())
                try:
                    await broker.start()
                except StorageError:
                    await broker.abandon()
                    raise
                self._broker = broker

    def stop(self, fuse: Fuse | None = None) -> None:
        with suppress(StorageError):
            self.do(self.broker.stop(), fuse)

    def kill(self) -> None:
        self._end()
        self.files = self.files.kill()

    def power_cut(self) -> None:
        self._end()
        self.files = self.files.crash(self.rng)
        self.told.lost_power = True

    def _end(self) -> None:
        self.loop.crash(HOST)
        self._broker = None

    def do(self, work: Coroutine[Any, Any, Any], fuse: Fuse | None = None) -> None:
        self._run(self.loop.spawn(HOST, work), fuse)

    def prepared(self) -> Prepared:
        return Prepared(self._disk, self.told)

    # -- changes of topics -------------------------------------------------------------------------------------

    async def create(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        wanted = WantedTopic(name, partitions, 1, configs=list((configs or {}).items()))
        services = self.broker.services
        answers = await services.topics.create([wanted], services.config.now, timeout_ms=60_000)
        answer = answers[name]
        if isinstance(answer, Exception):
            raise answer
        self.told.created.add(answer.id)

    async def delete(self, name: str) -> None:
        topic = self.broker.metadata.image.topics[name]
        places = [place for place in self.places() if place.topic_id == topic.id]
        self.told.may_go.add(topic.id)
        (answer,) = await self.broker.services.topics.delete([TopicReference(name)], timeout_ms=60_000)
        if answer.error is not None:
            raise answer.error
        self.told.gone.update(places)

    async def shrink(self, name: str) -> None:
        """As when the last partition was retired, and nobody has written to it for long."""
        topic = self.broker.metadata.image.topics[name]
        last = len(topic.partitions) - 1
        place = Place(topic.id, last, first_epoch(topic, last))
        end = self.broker.table.find(name, last).log.end_offset
        gone = {last: Removed(end, end, topic.partitions[last].leader_epoch + 1)}
        self.told.may_shrink.add(topic.id)
        await self.broker.metadata.drop_partitions(topic, gone, topic.configs, [])
        self.told.gone.add(place)
        await self.broker.hosting.reconcile()

    async def grow(self, name: str) -> None:
        count = len(self.broker.metadata.image.topics[name].partitions) + 1
        topics = self.broker.services.topics
        answers = await topics.create_partitions([(name, MorePartitions(count))], timeout_ms=60_000)
        if (error := answers[name]) is not None:
            raise error

    def places(self) -> dict[Place, str]:
        return {
            Place(topic.id, index, first_epoch(topic, index)): topic.name
            for topic in self.broker.metadata.image.topics.values()
            for index in range(len(topic.partitions))
        }

    # -- records -----------------------------------------------------------------------------------------------

    def write(self) -> None:
        """One record for each partition, acknowledged."""
        left = {place: name for place, name in self.places().items() if name != "keyed"}
        for place, name in left.items():
            if name == ROBBED:
                self.told.sequences.setdefault(place, 0)
        self._send(left, lambda place: (None, self._value(place)))
        keyed = {place: name for place, name in self.places().items() if name == "keyed"}
        for key in (b"a", b"b"):
            self._send(keyed, lambda place, key=key: (key, self._value(place)))

    def rob(self) -> None:
        """Behind the broker's back: half of what is durable of a log goes."""
        (path,) = (
            path
            for name in self.files.list_dir(partition_dir(DATA, ROBBED, 0))
            if (path := partition_dir(DATA, ROBBED, 0) / name).suffix == LOG
        )
        file = self.files.open(path)
        file.truncate(file.size() // 2)
        file.sync()
        file.close()
        for place in self.told.sequences:
            del self.told.acknowledged[place]  # but its offsets are given

    def bury_key(self) -> None:
        """A key that is deleted, and compacted away with its tombstone."""
        keyed = {place: name for place, name in self.places().items() if name == "keyed"}
        self._send(keyed, lambda place: (DEAD_KEY, self._value(place)))
        self._send(keyed, lambda _: (DEAD_KEY, None))
        for _ in range(3):
            self.write()
        self.loop.run_until(lambda: all(self._is_clean(place) for place in keyed))

    def _is_clean(self, place: Place) -> bool:
        log = self.broker.table.by_id[place.topic_id].partitions[place.index].log
        return all(record.key != DEAD_KEY for record in records_of(log))

    def _value(self, place: Place) -> bytes:
        if (
            sequence := self.told.sequences.get(place)
        ) is not None:  # the same again, until it is acknowledged
            return b"%s/%d/%d/#%d" % (place.topic_id.hex().encode(), *place[1:], sequence)
        self.told.sent += 1
        return b"%s/%d/%d/%d" % (place.topic_id.hex().encode(), *place[1:], self.told.sent)

    def _send(
        self, left: dict[Place, str], made: Callable[[Place], tuple[bytes | None, bytes | None]]
    ) -> None:
        self.loop.run_until_complete(self.loop.spawn("client", self._sent(dict(left), made)))

    async def _sent(
        self, left: dict[Place, str], made: Callable[[Place], tuple[bytes | None, bytes | None]]
    ) -> None:
        client = SimClient(HOST, PORT, 30)
        until = self.loop.time() + _SETTLE_SECONDS
        while left:
            if self.loop.time() > until:
                raise Violation(f"not served: {left}")
            records = {place: made(place) for place in left}
            request = produce.ProduceRequest(
                acks=-1,
                timeout_ms=20_000,
                topic_data=[
                    produce.TopicProduceData(
                        name=name,
                        partition_data=[
                            produce.PartitionProduceData(
                                index=place.index, records=self._batch(place, *records[place])
                            )
                        ],
                    )
                    for place, name in left.items()
                ],
            )
            try:
                answered = await client.call(ApiKey.PRODUCE, request)
            except NETWORK_TROUBLE:
                await asyncio.sleep(0.1)
                continue
            answers = {
                (topic.name, answer.index): answer
                for topic in answered.responses
                for answer in topic.partition_responses
            }
            for place, name in list(left.items()):
                answer = answers[name, place.index]
                if answer.error_code == ErrorCode.NONE:
                    self._acknowledged(place, answer.base_offset, *records[place])
                    del left[place]
                elif not ErrorCode(answer.error_code).retriable:
                    raise Violation(f"{name}-{place.index}: {ErrorCode(answer.error_code).name}")
            await asyncio.sleep(0.1)

    def _batch(self, place: Place, key: bytes | None, value: bytes | None) -> bytes:
        sequence = self.told.sequences.get(place)
        producer = BatchOptions() if sequence is None else idempotent(0, sequence)
        return bytes(build_batch([Record(offset=0, timestamp=1, key=key, value=value)], producer))

    def _acknowledged(self, place: Place, offset: int, key: bytes | None, value: bytes | None) -> None:
        told, number = self.told, place[:2]
        if offset <= told.given.get(number, -1):
            raise Violation(f"{place}: the offset {offset} is given again, {told.given[number]} was the last")
        told.given[number] = offset
        if place in told.sequences:
            told.sequences[place] += 1
        if key is None:
            told.acknowledged.setdefault(place, {})[offset] = value or b""
        else:
            told.keys.setdefault(place, {})[key] = offset, value

    # -- what must hold ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """What a start has made of it."""
        told, places = self.told, self.places()
        topics = {place.topic_id for place in places}
        if lost := told.created - topics - told.may_go:
            raise Violation(f"topics are gone: {lost}")
        if back := told.gone & {*places}:
            raise Violation(f"what was gone is back: {back}")
        for place in {*told.acknowledged, *told.keys} - {*places}:
            if place.topic_id not in told.may_go | told.may_shrink:
                raise Violation(f"{place} is gone")
            told.gone.add(place)
        self.loop.run_until(self._all_are_open)
        if told.lost_power and not self.broker.data_dir.was_clean:
            self._forgive([place for place, name in places.items() if name == "loose"])
        told.lost_power = False
        for place, name in places.items():
            self._check_log(place, name)

    def _forgive(self, places: list[Place]) -> None:
        """What was acknowledged from the page cache may be gone, but where the broker says that it stopped cleanly."""
        for place in places:
            self.told.acknowledged.pop(place, None)
            self.told.given.pop(place[:2], None)

    def _all_are_open(self) -> bool:
        by_id = self.broker.table.by_id
        return all(
            place.topic_id in by_id and place.index in by_id[place.topic_id].partitions
            for place in self.places()
        )

    def _check_log(self, place: Place, name: str) -> None:
        log = self.broker.table.by_id[place.topic_id].partitions[place.index].log
        records = records_of(log)
        values = {record.offset: record.value for record in records}
        for offset, value in self.told.acknowledged.get(place, {}).items():
            if values.get(offset) != value:
                raise Violation(
                    f"{name}-{place.index}: {value!r} at {offset} is lost, there is {values.get(offset)!r}"
                )
        own = b"%s/%d/%d/" % (place.topic_id.hex().encode(), *place[1:])
        if strangers := [value for value in values.values() if value and not value.startswith(own)]:
            raise Violation(f"{name}-{place.index} has records of others: {strangers}")
        if len({*values.values()} - {None}) != len([value for value in values.values() if value is not None]):
            raise Violation(f"{name}-{place.index} has records twice: {values}")
        last = {record.key: (record.offset, record.value) for record in records if record.key is not None}
        for key, (offset, value) in self.told.keys.get(place, {}).items():
            if key not in last and value is None:
                continue
            if last.get(key, (-1, None))[0] < offset:
                raise Violation(
                    f"{name}-{place.index}: {key!r} is {last.get(key)}, and not {value!r} at {offset}"
                )


def records_of(log: Any) -> list[Record]:
    data = b"".join(bytes(segment.file.pread(segment.size, 0)) for segment in log.segments)
    return list(read_all(data, from_offset=log.start_offset))
