"""A simulated cluster whose last partition is retired, removed and made again, while an archive is required.

Its offsets never go back: not for producers, not for a reader that keeps its place through all of it, and not for what
the archive said of the partition before. Retention takes nothing that is not archived.
"""

from contextlib import suppress

from tests.sim.cluster_clients import Violation, create_topic, send_until_acknowledged
from tests.sim.cluster_retiring import RETIRED, RetiringStory
from tests.sim.cluster_story import BROKERS, Story
from tests.sim.messages import NETWORK_TROUBLE, TOPIC, batch_of, fetch_request, idempotent, records_of

from penstock.core.archive_progress import ArchiveProgress
from penstock.core.error_codes import ErrorCode
from penstock.replication.partition import Partition
from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_broker import SESSION_SECONDS, SimBroker
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import create_partitions

SETTINGS = {
    "penstock.retire.check.interval.ms": "200",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
    "penstock.heal.grace.ms": "600000",
}
CONFIGS = {
    "internal.segment.bytes": "200",
    "min.insync.replicas": "2",
    "penstock.archive.required": "true",
    "penstock.retire.grace.ms": "1000",
    "retention.ms": "1",
}
# How often something is tried before a broker that hangs goes on: then it may be what all wait for.
HANGING_ROUNDS = 30
ARCHIVE = "archive"  # who tells how far it is


class RegrownStory(RetiringStory):
    def __init__(self, loop: SimLoop) -> None:
        Story.__init__(self, loop, SETTINGS, synced=False)
        self.told: dict[int, bytes] = {}  # what was acknowledged and is to be read here, by offset
        self.highest = -1  # offset that was ever given to a record
        self.written = 0
        self.producer = 0
        self.sequence = 0  # it begins anew in every partition that is made
        self._hangs: SimBroker | None = None
        self.replicas = self.rng.choice([1, BROKERS, BROKERS])
        self._reader = self.client("reader")
        self.place = 0  # of the reader, and of the archive, which reads the same
        self.epoch = 0  # of the record before it
        self.says_epochs = True  # as archives do; earlier ones did not

    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        self.run(create_topic(self.client("admin"), self.replicas, CONFIGS))
        self.let_pass(1)

    def run(self, work: object) -> object:
        return self.loop.run_until_complete(self.loop.spawn("client", work))  # type: ignore[arg-type]

    def write(self, count: int) -> None:
        for _ in range(count):
            value = b"record-%d" % self.written
            self.written += 1
            client, leader = self.client("writer"), self.leader(RETIRED)
            if self.is_retired() and leader is not None:
                client.knows(RETIRED, leader.name)  # metadata may not show it any more
            batch = batch_of([value], idempotent(self.producer, self.sequence))
            offset = self.run(send_until_acknowledged(client, RETIRED, batch))
            assert isinstance(offset, int)
            self.sequence += 1
            if offset <= self.highest:
                raise Violation(f"offset {offset} is given again, {self.highest} was the highest")
            self.highest = offset
            self.told[offset] = value

    def read(self, up_to: int) -> None:
        """A reader that keeps its place takes all there is below `up_to`."""
        missing = {offset for offset in self.told if self.place <= offset < up_to}
        while missing:
            for offset, value in self._fetched():
                if self.told.get(offset, value) != value:
                    raise Violation(f"a reader at {offset} was given {value!r}, not {self.told[offset]!r}")
                missing.discard(offset)
            self.let_pass(0.05)

    def _fetched(self) -> list[tuple[int, bytes]]:
        try:
            answered = self.run(
                self._reader.ask_leader(RETIRED, ApiKey.FETCH, fetch_request(RETIRED, self.place))
            )
        except NETWORK_TROUBLE:
            return []
        answer = answered.responses[0].partitions[0]  # type: ignore[attr-defined]
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise Violation(f"a reader that kept its place is told that {self.place} is none")
        if answer.error_code:
            self._reader.forget(RETIRED)
        records = [] if answer.error_code else records_of(answer, self.place)
        if records:
            self.place = records[-1].offset + 1
            self.epoch = self.leading().log.epochs.epoch_at(self.place - 1)
        return [(record.offset, record.value or b"") for record in records]

    def leading(self) -> Partition:
        leader = self.leader(RETIRED)
        partition = None if leader is None else self.replica(leader, RETIRED)
        assert partition is not None
        return partition

    def archive(self) -> None:
        """Everything that was read is archived, and said to be."""
        topic_id = next(
            machine.broker.metadata.image.topics[TOPIC].id for machine in self.machines if machine.broker
        )
        epochs = {RETIRED: self.epoch} if self.says_epochs else {}
        progress = ArchiveProgress(topic_id, {RETIRED: self.place}, epochs)
        # What it told before it tells no more: repeated where no answer came in time, that would undo this, for ever.
        self.loop.crash(ARCHIVE)
        self.configure({"penstock.archive.progress": str(progress)}, ARCHIVE)
        self.let_pass(0.5)

    def check_kept(self) -> None:
        """Of what is not archived everything is there, and the archive is believed to have no more than it has."""
        self.let_pass(1)
        start = self.leading().log.start_offset
        lost = [offset for offset in self.told if self.place <= offset < start and offset >= self.first]
        if lost:
            raise Violation(f"retention took {lost}, and the archive has only what is below {self.place}")

    @property
    def first(self) -> int:
        gap = self.leading().gap
        return 0 if gap is None else gap.end

    def count(self) -> int:
        return len(list(self.states()))

    def shrink_and_grow(self) -> None:
        """With brokers that hear late, hang, or are away for a part of it, and with disks that fail."""
        self.begin_to_retire()
        self.loop.run_until(self.is_retired)
        self.write(self.rng.randrange(3))  # moved, never to be read here
        limit = self.limit
        self.read(limit)
        self.archive()
        late, victim = self.rng.sample(self.machines, 2)
        late.store_lag_s = self.rng.choice([0.0, 0.3])
        fate = self.rng.choice(["kill", "hang", "wipe", "nothing"])
        for machine in self.machines:
            # Its files do not go when they should. (A broker that starts with such a disk does not come up.)
            if self.rng.random() < 0.3 and (machine is not victim or fate != "kill"):
                machine.files.fail_next("rename", "*/Partition-1")
        if fate == "kill":
            self.turn_off(victim, power=False)
        elif fate == "hang":
            self._hang(victim)
        elif fate == "wipe":
            self._wipe(victim)
        self._until_removed()
        self.told = {offset: value for offset, value in self.told.items() if offset < limit}
        self._grow()
        self.sequence = 0
        self._wake()
        late.store_lag_s = 0.0
        self.let_pass(1)
        for machine in self.machines:
            machine.files.mend()

    def _wipe(self, victim: SimBroker) -> None:
        """Readers have left, and a broker gets a new disk: perhaps the only one that knew where the log ends."""
        self._until_hidden()
        is_only = self.replicas == 1
        if is_only:
            victim = self.leader(RETIRED) or victim
        if self.count() == 1 or not victim.running:
            return
        limit, epoch = self.limit, self._state(RETIRED).leader_epoch
        victim.kill()
        victim.files = MemFiles(self.rng.getrandbits(32))
        self.let_pass(
            SESSION_SECONDS * 1.5
        )  # while another disk is registered under its number it does not come up
        victim.start()
        if is_only:
            self.highest = limit - 1  # what was written behind it is read elsewhere, if that is still there
            self.loop.run_until(
                lambda: self._state(RETIRED).leader_epoch > epoch and bool(self.leader(RETIRED))
            )
            self.write(self.rng.randrange(2))

    def _until_hidden(self) -> None:
        for _ in range(100):
            self.let_pass(0.1)
            if self.is_hidden():
                return

    def _hang(self, victim: SimBroker) -> None:
        """From just before it is removed on, if possible until it is made again: its session may survive it."""
        self._until_hidden()
        self.let_pass(self.rng.uniform(0, 0.6))
        if victim.running:
            victim.pause()
            self._hangs = victim

    def _wake(self) -> None:
        victim, self._hangs = self._hangs, None
        if victim is not None:
            victim.resume()
            if self.rng.random() < 0.5:
                victim.files.mend()
                self.turn_off(victim, power=False)

    def _until_removed(self) -> None:
        for tried in range(400):
            self.let_pass(0.1)
            if self.count() == 1:
                return
            if tried == HANGING_ROUNDS:
                self._wake()
        raise Violation(f"it is never removed: {self._state(RETIRED)}")

    def _grow(self) -> None:
        wanted = create_partitions.CreatePartitionsTopic(name=TOPIC, count=2, assignments=None)
        request = create_partitions.CreatePartitionsRequest(topics=[wanted], timeout_ms=5000)
        admin = self.client("growing")
        for tried in range(200):
            with suppress(*NETWORK_TROUBLE):
                self.run(admin.ask_any(ApiKey.CREATE_PARTITIONS, request))
            self.let_pass(0.1)
            if tried == HANGING_ROUNDS:
                self._wake()
            if self.count() == 2 and self._state(RETIRED).leader > 0:
                return
        raise Violation("it cannot be made again")
