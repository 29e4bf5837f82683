"""A relay of another kind, between two topics: messages of one log go to another out of order, by numbers of their own.

So will delayed messages and dead letters. The pump, the inbox and the target's log are those that serve retired
partitions; only the source is another one.
"""

import asyncio
import random
from collections.abc import Sequence

import pytest
from tests.unit.storage.logs import NOW_MS, a_batch, opened

from penstock.config.broker import BrokerConfig
from penstock.config.topic import TopicConfig
from penstock.coordination.image import ClusterImage
from penstock.coordination.image import Topic as TopicImage
from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.records.batch import read_header, stamp_crc
from penstock.records.builder import BatchBuilder, BatchOptions
from penstock.records.reader import read_all
from penstock.records.relay import RelayPlace, RelaySource, position_batch, stamp_relayed
from penstock.replication.limits import DataWaiter
from penstock.replication.partition import Partition
from penstock.replication.route_registry import RelayRoute
from penstock.replication.table import PartitionTable, Topic
from penstock.services.relay.inbox import RelayInbox
from penstock.services.relay.positions import keep_positions, oldest_position, repeat_positions
from penstock.services.relay.pump import Moved, Pump
from penstock.services.relay.source import Chunk, Run
from penstock.storage.producers import ProducerState
from penstock.storage.replicated import append_replicated
from penstock.storage.retention import RetentionLimits
from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_clock import SimClock
from penstock.testing.sim_failures import SimulationError
from penstock.testing.sim_loop import SimLoop

KIND = 1
DELAYED, TOPIC = b"delayed messages", b"their own topic."
ROUTE = RelayRoute(KIND, DELAYED, 2, TOPIC, 0)
LETTERS = RelayRoute(KIND, TOPIC, 2, TOPIC, 0)  # the same kind and partition, of another topic
MESSAGES = 12
SETTINGS = {"penstock.ack.after": "written", "retention.ms": "1000"}
SEEDS = 40


class NoSyncer:
    def request(self, partition: Partition) -> None:
        pass


class DenseSource:
    """Messages become due in any order. What is due gets the next number: an intent, committed before it moves."""

    def __init__(self, route: RelayRoute, epoch: int, intents: list[bytes]) -> None:
        self._source = route.source
        self._intents = intents
        self._waiting: dict[DataWaiter, None] = {}
        self._known = False
        self.name = f"delayed-{route.source_partition}"
        self.epoch = epoch
        self.done = 0
        self.lost: list[range] = []

    def due(self, message: bytes) -> None:
        self._intents.append(message)
        for waiter in list(self._waiting):
            waiter.advanced(1)

    @property
    def limit(self) -> int:
        return len(self._intents)

    def knows_target(self) -> bool:
        return self._known

    def asks_target(self) -> None:
        pass

    def forget_target(self) -> None:
        self._known = False

    async def resume(self, places: Sequence[RelayPlace]) -> tuple[int, RelayPlace | None]:
        return (places[0].number + 1, places[0]) if places else (0, None)

    def resumed(self, number: int) -> None:
        self._known, self.done = True, number

    async def read(self, number: int, place: RelayPlace | None) -> Chunk:
        run = Run(self._source, place)
        end = min(number + 3, self.limit)
        for intent in range(number, end):
            builder = BatchBuilder(BatchOptions())
            builder.append(self._intents[intent], timestamp=NOW_MS)
            batch = builder.build()
            run.add(memoryview(batch), read_header(batch), self.epoch, intent)
        await asyncio.sleep(0)
        return Chunk(run.batches, end, run.place, run.lost)

    def moved(self, number: int) -> None:
        self.done = number

    def tell_lost(self, numbers: range) -> None:
        self.lost.append(numbers)

    def wait(self, waiter: DataWaiter) -> None:
        self._waiting[waiter] = None

    def leave(self, waiter: DataWaiter) -> None:
        del self._waiting[waiter]


class Target:
    """A partition that can crash, or be led by another replica, and the inbox in front of it."""

    def __init__(self, loop: SimLoop, rng: random.Random) -> None:
        self._rng = rng
        self.loop = loop
        self.files = MemFiles(loop.seed)
        self.table = PartitionTable()
        self.image = ClusterImage()
        self.inbox = RelayInbox(SimClock(loop), self.table, self.image)
        self.epoch = 1
        self.troubles: list[str] = []
        for route in (ROUTE, LETTERS):
            self.table.routes.register(KIND, route.source_topic_id, [route])
        config = TopicConfig.resolve(SETTINGS, BrokerConfig.resolve({"log.dirs": "/data"}))
        self.topic = Topic("t", TOPIC, config, {}, count=1)
        self.table.add(self.topic)
        self._lead()

    def sources_lead(self, epoch: int) -> None:
        state = PartitionState((1,), (1,), 1, leader_epoch=epoch)
        for topic_id in (DELAYED, TOPIC):
            self.image.topics_by_id[topic_id] = TopicImage("any", topic_id, (state,) * 3, {}, 0)

    def _lead(self) -> None:
        log = opened(self.files).log
        self.partition = Partition("t", TOPIC, 0, log, self.epoch, NoSyncer(), sync_before_ack=False)
        self.topic.partitions[0] = self.topic.led[0] = self.partition

    def crash(self, *, power: bool) -> None:
        """The same broker leads again; without power, what was not synced is gone."""
        self.files = self.files.crash(self._rng) if power else self.files.kill()
        self.epoch += 1
        self._lead()

    def fail_over(self, lost: int) -> None:
        """To a replica that was built from the log alone, and lacks its last batches."""
        data = self.content()
        self.files = MemFiles(self.loop.seed)
        self.epoch += 1
        self._lead()
        batches = []
        position = 0
        while position < len(data):
            size = read_header(data, position).size_bytes
            batches.append(data[position : position + size])
            position += size
        for batch in batches[: max(len(batches) - lost, 0)]:
            append_replicated(self.partition.log, memoryview(bytearray(batch)), NOW_MS)
        self.partition.write_held()

    def content(self) -> bytes:
        log = self.partition.log
        return b"".join(segment.file.pread(segment.size, 0) for segment in log.segments)

    def messages(self) -> list[bytes]:
        return [record.value or b"" for record in read_all(self.content())]


class Way:
    """From one source to the target: answers get lost, and requests come late and once more."""

    def __init__(self, target: Target, route: RelayRoute) -> None:
        self._target = target
        self._route = route
        self._late: list[bytearray] = []

    @property
    def epoch(self) -> int:
        return self._target.epoch

    async def places(self) -> tuple[RelayPlace, ...]:
        return self._target.inbox.places(self._route)

    async def deliver(self, batches: bytearray) -> None:
        trouble = self._target.troubles.pop() if self._target.troubles else ""
        if trouble == "before":
            self._late.append(bytearray(batches))
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await self._target.inbox.take(self._route, memoryview(batches), 5)
        if self._late:
            await self._target.inbox.take(self._route, memoryview(self._late.pop()), 5)
        if trouble == "after":
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)


def run_story(seed: int, *, lossy: bool = False) -> None:
    rng = random.Random(seed)
    with SimLoop(seed) as loop:
        target = Target(loop, rng)
        intents: dict[RelayRoute, list[bytes]] = {ROUTE: [], LETTERS: []}
        waiting = {
            route: [b"%d-%d" % (number, n) for n in range(MESSAGES)] for number, route in enumerate(intents)
        }
        epoch, sources = 0, {}
        while any(waiting.values()):
            if not sources or rng.random() < 0.3:  # another leader of both sources
                epoch += 1
                loop.crash(f"source-{epoch - 1}")
                target.sources_lead(epoch)
                sources = {route: DenseSource(route, epoch, intents[route]) for route in intents}
                for route, source in sources.items():
                    loop.spawn(f"source-{epoch}", Pump(source, Way(target, route), Moved()).run())
            route = rng.choice([route for route in waiting if waiting[route]])
            sources[route].due(waiting[route].pop(rng.randrange(len(waiting[route]))))
            if rng.random() < 0.4:
                target.troubles.append(rng.choice(["before", "after"]))
            loop.run_for(rng.choice([0, 0.001, 0.2]))
            if rng.random() < 0.3:
                if rng.random() < 0.5:
                    target.crash(power=lossy)
                else:
                    target.fail_over(rng.randrange(4) if lossy else 0)
        target.troubles.clear()
        loop.run_until(lambda: all(source.done == MESSAGES for source in sources.values()))
        loop.run_for(3)
        found = target.messages()
        for number, route in enumerate(intents):
            of_route = [message for message in found if message.startswith(b"%d-" % number)]
            assert of_route == intents[route], "each once, in the order in which they became due"
        assert not any(source.lost for source in sources.values())


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_message_arrives_once_in_the_order_of_its_number(seed: int, lossy: bool) -> None:
    run_story(seed, lossy=lossy)


def goes_wrong(seed: int) -> bool:
    try:
        run_story(seed)
    except (AssertionError, SimulationError):
        return True
    return False


def takes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerState, "check_relayed", lambda *given: None)


def forgets_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that is built from the log takes positions for batches like others."""
    honest = ProducerState.record

    def record(state: ProducerState, header: object, offset: int, batch: object = None) -> None:
        if batch is None or not state.relays.of(header, batch)[1].named:  # type: ignore[arg-type]
            honest(state, header, offset, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(ProducerState, "record", record)


def knows_sources_by_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever topic they are of."""
    monkeypatch.setattr(
        RelayRoute, "source", property(lambda route: RelaySource(route.kind, TOPIC, route.source_partition))
    )


@pytest.mark.parametrize("plant", [takes_everything, forgets_names, knows_sources_by_partition])
def test_the_story_finds_a_planted_bug(plant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(plant)
    plant(monkeypatch)
    assert any(goes_wrong(seed) for seed in range(10))


@pytest.fixture
def target() -> Target:
    with SimLoop(1) as loop:
        target = Target(loop, random.Random(1))
        target.sources_lead(1)
        return target


def a_message(epoch: int, number: int) -> bytearray:
    batch = a_batch()
    stamp_relayed(memoryview(batch), 0, epoch, number, named=True)
    return batch


def take(target: Target, route: RelayRoute, batch: bytearray) -> int:
    with SimLoop(1) as loop:
        taken: int = loop.run_until_complete(target.inbox.take(route, memoryview(batch), 5))
        return taken


@pytest.mark.parametrize(
    ("route", "batch", "code"),
    [
        (ROUTE._replace(target_partition=1), a_message(1, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ROUTE._replace(kind=2), a_message(1, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ROUTE._replace(source_partition=1), a_message(1, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ROUTE, a_batch(), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ROUTE, a_message(2, 0), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (ROUTE, position_batch(ROUTE.source, RelayPlace(2, 0), NOW_MS), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (
            ROUTE,
            position_batch(LETTERS.source, RelayPlace(1, 0), NOW_MS),
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ),
        (ROUTE, a_message(1, 1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_what_does_not_come_by_a_route_that_is_known_is_refused(
    target: Target, route: RelayRoute, batch: bytearray, code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as refused:
        take(target, route, batch)
    assert refused.value.code is code
    assert target.messages() == []


def test_a_batch_under_the_layout_of_retired_partitions_is_none_of_another_kind(target: Target) -> None:
    batch = a_batch()
    stamp_relayed(memoryview(batch), 2, 1, 0)
    with pytest.raises(ApiError) as refused:
        take(target, ROUTE, batch)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_retention_keeps_the_name_or_says_it_again(target: Target) -> None:
    """The last message is young, the position that says whose it is is old: a replica built anew needs both."""
    take(target, ROUTE, a_message(1, 0))
    partition, log = target.partition, target.partition.log
    log.roll(NOW_MS)
    take(target, ROUTE, a_message(1, 1))
    assert oldest_position([ROUTE], partition) == 0
    limits, later_ms = RetentionLimits(1000), read_header(target.content()).max_timestamp + 10_000
    assert keep_positions([ROUTE], partition, limits, partition.high_watermark, later_ms) == 0
    assert oldest_position([ROUTE], partition) == 3
    said = log.active.file.pread(log.active.size, 0)
    assert read_header(said).base_offset == 3
    again = ProducerState()
    again.record(read_header(said), 3, said)
    known = again.relays.get(ROUTE.source)
    assert known is not None
    assert known.places() == (RelayPlace(1, 1),)


def test_what_is_said_again_takes_nobodys_name(target: Target) -> None:
    for route in (ROUTE, LETTERS):
        take(target, route, a_message(1, 0))
    partition = target.partition
    routes = target.table.routes.into(TOPIC, 0)
    assert routes == (ROUTE, LETTERS)
    repeat_positions(routes, partition, NOW_MS)
    for number, route in enumerate(routes):
        known = partition.log.producers.relays.get(route.source)
        assert known is not None
        assert (known.name, known.places()) == (number, (RelayPlace(1, 0),))
        take(target, route, a_message(1, 1))
    assert len(target.messages()) == 4


def test_a_position_of_a_newer_release_is_refused(target: Target) -> None:
    batch = position_batch(ROUTE.source, RelayPlace(1, 0), NOW_MS)
    batch[batch.index(DELAYED) - 3] = 9  # before it: version and kind
    stamp_crc(memoryview(batch), 0, len(batch))
    with pytest.raises(ApiError) as refused:
        take(target, ROUTE, batch)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
