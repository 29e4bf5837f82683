"""Whatever producers ask, whenever appends fail: what was told holds, and no fenced producer has its way."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.property.transactions_story import IDLE_MS, TIMEOUT_MS, Producer, World

from penstock.groups.transactions.layouts import TopicPartition

IDS = ("x", "y")
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
SOME = st.frozensets(st.sampled_from(PARTITIONS), max_size=3)
NUMBER = st.integers(0, 100)


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(2)
        self.producers: list[Producer] = []

    @initialize(level=st.integers(0, 2), epoch=st.sampled_from([0, 32763, 32764, 32765, 32766]))
    def begin(self, level: int, epoch: int) -> None:
        self.world.set_level(level)
        self.producers.append(self.world.found("x", epoch))

    # -- producers -----------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.producers) < 4)
    @rule(name=st.sampled_from(IDS), version=st.sampled_from([0, 2]))
    def a_producer_comes(self, name: str, version: int) -> None:
        self.producers.append(Producer(name, version))
        self.world.init(self.producers[-1])

    def _producer(self, number: int) -> Producer:
        """One that was not fenced most often, since it is the one that gets anywhere."""
        owners = list(self.world.owners.values())
        some = owners if owners and number > 20 else self.producers
        return some[number % len(some)]

    def _knows(self, producer: Producer, stale: int) -> tuple[int, int]:
        """What it has, or, of a request that was delayed for long, what it had once."""
        known = (producer.producer_id, producer.epoch)
        if known not in producer.known:
            producer.known.append(known)
        return producer.known[stale % len(producer.known)] if stale > 80 else known

    @precondition(lambda self: len(self.producers) == 4)
    @rule(number=NUMBER, fresh=st.integers(0, 3))
    def another_takes_over(self, number: int, fresh: int) -> None:
        """Or the same, which begins anew."""
        if fresh == 0:
            self.producers[number % 4] = Producer(IDS[number % 2], number % 4 // 2 * 2)
            self.world.init(self.producers[number % 4])
        elif fresh == 1:
            self.world.init(self._producer(number))

    @rule(number=NUMBER, wish=st.integers(0, 2), committed=st.booleans())
    def a_fenced_one_wakes_up(self, number: int, wish: int, committed: bool) -> None:
        """Once everything is settled; what it had last is what it asks with."""
        owners, world = self.world.owners.values(), self.world
        fenced = [one for one in self.producers if one not in owners and one.epoch >= 0]
        if fenced:
            producer = fenced[number % len(fenced)]
            named = self._knows(producer, 0)
            world.commit(len(world.under_way))
            if wish == 0:
                world.init(producer, named=named)
            elif wish == 1:
                world.add(producer, frozenset(PARTITIONS), named)
            else:
                world.end(producer, committed=committed, named=named, fresh=True)
            world.commit(len(world.under_way))

    @rule(number=NUMBER, partitions=SOME, committed=st.booleans())
    def it_has_a_transaction(
        self, number: int, partitions: frozenset[TopicPartition], committed: bool
    ) -> None:
        """Step by step, each when the one before was answered: as far as nobody comes between."""
        producer, world = self._producer(number), self.world
        world.add(producer, partitions, self._knows(producer, 0))
        world.commit(len(world.under_way))
        named = self._knows(producer, 0)
        world.end(producer, committed=committed, named=named, fresh=True)
        world.commit(len(world.under_way))

    @rule(number=NUMBER, stale=NUMBER)
    def it_goes_on_after_an_error(self, number: int, stale: int) -> None:
        producer = self._producer(number)
        self.world.init(producer, named=self._knows(producer, stale))

    @rule(number=NUMBER, stale=NUMBER, partitions=SOME)
    def it_adds(self, number: int, stale: int, partitions: frozenset[TopicPartition]) -> None:
        producer = self._producer(number)
        self.world.add(producer, partitions, self._knows(producer, stale))

    @rule(number=NUMBER, stale=NUMBER, partitions=SOME)
    def a_leader_asks(self, number: int, stale: int, partitions: frozenset[TopicPartition]) -> None:
        producer = self._producer(number)
        self.world.verify(producer, partitions, self._knows(producer, stale))

    @rule(number=NUMBER, stale=NUMBER, committed=st.booleans())
    def it_ends(self, number: int, stale: int, committed: bool) -> None:
        producer = self._producer(number)
        named = self._knows(producer, stale)
        fresh = named == (producer.producer_id, producer.epoch)
        self.world.end(producer, committed=committed, named=named, fresh=fresh)

    # -- the world -----------------------------------------------------------------------------------------

    @rule(batches=st.integers(1, 5))
    def records_are_committed(self, batches: int) -> None:
        self.world.commit(batches)

    @precondition(lambda self: self.world.under_way)
    @rule(surviving=st.integers(0, 3), begun=st.booleans())
    def an_append_fails(self, surviving: int, begun: bool) -> None:
        self.world.fail(surviving)
        if begun:
            self.world.begin()

    @rule()
    def what_was_read_begins(self) -> None:
        self.world.begin()

    @precondition(lambda self: self.world.due)
    @rule(number=NUMBER, partitions=st.just(frozenset(PARTITIONS)) | SOME)
    def markers_are_written(self, number: int, partitions: frozenset[TopicPartition]) -> None:
        self.world.mark(number, partitions)

    @rule(milliseconds=st.sampled_from([1, 10, 1000, 1000, TIMEOUT_MS, TIMEOUT_MS + 1, IDLE_MS // 2]))
    def time_passes(self, milliseconds: int) -> None:
        self.world.pass_ms(milliseconds)

    @rule(level=st.integers(0, 2), ids=st.integers(0, 3))
    def the_level_changes_or_ids_are_fetched(self, level: int, ids: int) -> None:
        if ids:
            self.world.refill(ids)
        else:
            self.world.set_level(level)

    @invariant()
    def sizes_add_up(self) -> None:
        self.world.check_sizes()

    def teardown(self) -> None:
        self.world.commit(len(self.world.under_way))
        self.world.fail(0)
        self.world.begin()
        for due in list(self.world.due):
            self.world.mark(self.world.due.index(due), due.partitions)
        self.world.commit(len(self.world.under_way))
        prepared = [s for s in self.world.machine.subjects() if s.pending is not None]
        assert not prepared, "an end that was prepared was never completed"


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=3 * settings().max_examples, stateful_step_count=50)
