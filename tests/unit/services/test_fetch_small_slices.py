"""A fetch of many partitions with little in each: an answer has so much in small slices, and all have their turn."""

from tests.integration.raw import make_batch
from tests.unit.frontends.in_memory import Asked, Machine

from penstock.core.limits import FETCH_COPIED_BYTES_MAX, SLICE_BYTES_MIN, UNSENT_BYTES_MAX
from penstock.frontends.kafka.fetch_sessions import FetchSession
from penstock.services.fetching.found import FoundInTopic
from penstock.wire.kafka.fetch import FetchPartition, FetchRequest

PARTITIONS = 80
BATCH = make_batch([bytes(SLICE_BYTES_MIN - 1000)])
PLENTY = 1 << 30


async def fill(asked: Asked) -> None:
    await asked.create("t", partitions=PARTITIONS)
    for index in range(PARTITIONS):
        asked.append("t", bytearray(BATCH), index)


class Unread:
    peer = "?"

    def kept_bytes(self) -> int:
        return 0

    sent_bytes = kept_bytes

    def abort(self) -> None: ...


class Consumer:
    """Of a fetch session: it names a partition again when it has read some of it."""

    def __init__(self, asked: Asked) -> None:
        self._fetch = asked.fetch
        self._session_id = self._epoch = 0
        self._changed = dict.fromkeys(range(PARTITIONS), 0)

    def fetch(self, min_bytes: int = 1) -> dict[int, int]:
        """The sizes of what it gets at once, by partition."""
        found: list[list[FoundInTopic]] = []

        def answered(topics: list[FoundInTopic], session: FetchSession | None) -> None:
            found.append(topics)
            self._session_id = 0 if session is None else session.id

        wanted = [
            FetchPartition(index, -1, offset, -1, -1, PLENTY) for index, offset in self._changed.items()
        ]
        topics = [(b"t", wanted)] if wanted else []
        request = FetchRequest(
            -1, -1, 60_000, min_bytes, PLENTY, 0, self._session_id, self._epoch, topics, [], b""
        )
        give_up = self._fetch(request, 11, answered)
        give_up()
        assert found, "it waits, although there is something"
        sizes = {
            answer.partition: answer.size for _, answers in found[0] for answer in answers if answer.size
        }
        self._changed = dict.fromkeys(sizes, 1)
        self._epoch += 1
        return sizes


async def test_an_answer_ends_at_a_bound_and_every_partition_has_its_turn() -> None:
    async with Machine().broker() as asked:
        await fill(asked)
        consumer, read = Consumer(asked), dict[int, int]()
        while len(read) < PARTITIONS:
            sizes = consumer.fetch()
            assert sizes, "a standstill"
            assert not sizes.keys() & read.keys()
            assert sum(sizes.values()) < FETCH_COPIED_BYTES_MAX + SLICE_BYTES_MIN
            read |= sizes
        assert set(read.values()) == {len(BATCH)}


async def test_what_it_may_not_have_is_not_waited_for() -> None:
    async with Machine().broker() as asked:
        await fill(asked)
        assert sum(Consumer(asked).fetch(min_bytes=PLENTY).values()) >= FETCH_COPIED_BYTES_MAX


async def test_where_memory_for_answers_is_short_an_answer_has_little() -> None:
    async with Machine().broker() as asked:
        await fill(asked)
        asked.broker.connections.send_budget.hold(Unread(), UNSENT_BYTES_MAX // 2 + 1)
        assert len(Consumer(asked).fetch()) == 2
