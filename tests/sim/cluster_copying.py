"""A simulated cluster that elects uncleanly, with replicas that are copied anew, deleted from, stopped and lost.

One thing after the other, and each at its worst moment: while a follower has less than it had, the others go. What an
unclean election gives up is given up; what was acknowledged behind it is not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from tests.sim.cluster_clients import Violation, create_topic
from tests.sim.cluster_compacting import CLEANING, COMPACTED, records_of_keys
from tests.sim.cluster_deleting import delete_request
from tests.sim.cluster_story import BROKERS, replica_of
from tests.sim.messages import NETWORK_TROUBLE, TOPIC, produce_request
from tests.sim.test_cluster_scenes import Scene

from penstock.controller import controller
from penstock.controller.election import Rules, World, react
from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.records.builder import build_batch
from penstock.records.reader import Record
from penstock.replication.leading import Leading
from penstock.replication.partition import Partition
from penstock.storage.log import Log
from penstock.testing.sim_broker import PORT, SESSION_SECONDS, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

_KEYS = 5
POLICIES = ("compact", "delete", "delete", "compact,delete")
_FEW_BYTES = {"replica.fetch.max.bytes": "100", "replica.fetch.backoff.ms": "20"}


class CopyingStory(Scene):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, {**CLEANING, **_FEW_BYTES}, synced=False)
        self.compacts = self.rng.random() < 0.6
        self.tombstones = self.rng.choice([0, 0.5])  # who misses one is copied anew, which hides much else
        self.changes = self.rng.random() < 0.5  # its policy, from time to time
        self.last: dict[bytes, tuple[int, bytes | None]] = {}  # what is certain of each key
        self.deleted = 0  # what lies below it may be gone
        self.unclean = False  # what was lost is not known yet
        self.written = 0
        self.began: dict[int, int] = {}  # where each leader epoch did

    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        configs = {
            **(COMPACTED if self.compacts else {"retention.ms": "-1"}),
            "internal.segment.bytes": "300",
            "min.insync.replicas": self.rng.choice(["1", "2"]),
            "unclean.leader.election.enable": "true",
        }
        self.do(create_topic(self.client("admin"), BROKERS, configs))
        self.until_whole()
        self.loop.run_until(lambda: all(map(_has_opened, self.machines)))

    def tell(self) -> None:
        steps = [self.lose_others_of_a_copy, self.lose_the_newest, self.stop_and_return]
        if self.compacts:
            steps += [self.return_to_a_copy, self.break_off_a_compaction]
        with self._elections():
            self.begin()
            for _ in range(self.rng.randint(2, 4)):
                self.write(self.rng.randint(3, 6))
                self.rng.choice(steps)()
                self.write(self.rng.randint(1, 5))
                if self.changes:
                    self.change_policy()
                if self.rng.random() < 0.5 and self.leader().ready:
                    self.leader().kill()
                    self.settle()
                self.gather()
                self.check()

    # -- what happens ----------------------------------------------------------------------------------------

    def lose_others_of_a_copy(self) -> None:
        away = self.rng.choice(self.followers())
        away.kill()
        self.settle()
        self.write_slowly(self.rng.randint(5, 20))
        if self.rng.random() < 0.5:
            away.files.remove_tree(away.data / "topics" / TOPIC)
            away.files.sync_all(away.data)
        before = self.leader_log().end_offset
        away.start()
        self._until_shorter(away, before)
        self.let_pass(self.rng.choice([0, 0, 0.01, 0.03]))
        self._kill([machine for machine in self.machines if machine is not away])

    def lose_the_newest(self) -> None:
        """Who leads next has never heard of what was written, and deleted, since."""
        newest, (behind, between) = self.leader(), self.rng.sample(self.followers(), 2)
        self._kill([behind, between])
        self.write(self.rng.randint(1, 6))
        self.delete()
        between.start()
        self.let_pass(4)
        self._kill([newest, between])
        behind.start()
        self.settle()
        self.write(self.rng.choice([0, 3, 8]))
        between.start()
        self.let_pass(3)

    def return_to_a_copy(self) -> None:
        """Who has what an election gave up finds one in the lead who was not there when its epoch began."""
        newest, (leads, copy) = self.leader(), self.rng.sample(self.followers(), 2)
        self._kill([leads, copy])
        self.write(self.rng.randint(1, 6))
        self._kill([newest])
        leads.start()
        self.settle()
        for _ in range(self.rng.randint(1, 3)):
            self.write_slowly(self.rng.randint(4, 15))  # and compact it, while nobody has it
            if self.rng.random() < 0.3:
                self._kill([leads])
                leads.start()
                self.settle()
        copy.start()
        self.let_pass(4)
        if self.rng.random() < 0.3:
            self._kill([copy])
            copy.start()
            self.let_pass(4)
        self._kill([leads])
        newest.start()
        self.let_pass(3)

    def break_off_a_compaction(self) -> None:
        """Values went for the sake of records that an election is about to give up, in a round that is not done."""
        behind, other = self.rng.sample(self.followers(), 2)
        self._kill([behind])
        log = replica_of(other, 0).log
        for _ in range(self.rng.randint(5, 20)):
            self.write(1)
            for _ in range(50):
                self.let_pass(0.002)
                if log.cleaned.went_by > log.cleaned.offset:
                    self.let_pass(self.rng.choice([0.001, 0.003, 0.005]))
                    break
            else:
                continue
            break
        self._kill([machine for machine in self.machines if machine is not behind])
        behind.start()
        self.settle()

    def stop_and_return(self) -> None:
        """One after the other, so that they lead in turn; the last one while it may have less than before."""
        for machine in self.rng.sample(self.machines, 2):
            if not machine.ready:
                continue
            end = replica_of(machine, 0).log.end_offset
            machine.stop()
            self.let_pass(3)
            machine.start()
            self._until_shorter(machine, end)
        others = [broker for broker in self.machines if broker is not machine]
        self._kill(others)

    def change_policy(self) -> None:
        """A topic that does not compact now may have gaps, and one that does may have been copied while it did not."""
        if self.compacts and self._state(0).leader > 0 and self.leader().ready:
            self.set_topic("cleanup.policy", self.rng.choice(POLICIES))

    def delete(self) -> None:
        if self.compacts or not self.leader().ready:
            return
        end = self.leader_log().end_offset
        self.deleted = self.rng.choice([end, self.rng.randint(self.deleted, end)])
        request = delete_request(0, self.deleted)
        self.do(SimClient(self.leader().name, PORT).call(ApiKey.DELETE_RECORDS, request))

    def gather(self) -> None:
        for machine in self.machines:
            if not machine.running:
                machine.start()
        self.settle()
        self.until_whole()

    def _kill(self, machines: list[SimBroker]) -> None:
        for machine in machines:
            if machine.running:
                machine.kill()
        self.settle()

    def _until_shorter(self, machine: SimBroker, end: int) -> None:
        for _ in range(1500):
            if machine.ready and _has_opened(machine) and replica_of(machine, 0).log.end_offset < end:
                return
            self.let_pass(0.001)

    def settle(self) -> None:
        self.let_pass(SESSION_SECONDS + 2)
        if self.unclean and self._state(0).leader > 0 and self.leader().ready:
            self._take_stock()

    # -- writing, and what is known of it --------------------------------------------------------------------

    def write(self, count: int) -> None:
        for _ in range(count):
            if self._state(0).leader < 0 or not self.leader().ready:
                return
            number = self.written = self.written + 1
            key = b"%d" % (self.rng.randrange(_KEYS) if self.compacts else number)
            value = None if self.compacts and self.rng.random() < self.tombstones else b"value %d" % number
            known = self.last.pop(key, None)
            batch = bytes(build_batch([Record(offset=0, timestamp=1, key=key, value=value)]))
            try:
                call = SimClient(self.leader().name, PORT).call(ApiKey.PRODUCE, produce_request(0, batch))
                answer = self.do(call).responses[0].partition_responses[0]
            except NETWORK_TROUBLE:
                continue
            if answer.error_code == ErrorCode.NONE:
                self.last[key] = answer.base_offset, value
            elif answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS and known is not None:
                self.last[key] = known

    def write_slowly(self, count: int) -> None:
        for _ in range(count):
            if self.changes and self.rng.random() < 0.1:
                self.change_policy()
            self.write(1)
            self.let_pass(0.1)

    def leader_log(self) -> Log:
        return replica_of(self.leader(), 0).log

    def _take_stock(self) -> None:
        """What an unclean leader has is what there is; of other keys nothing is certain."""
        self.unclean = False
        kept = records_of_keys(replica_of(self.leader(), 0))
        self.last = {key: records[-1] for key, records in kept.items()}
        self.deleted = min(self.deleted, self.leader_log().end_offset)

    def check(self) -> None:
        for machine in self.machines:
            kept = records_of_keys(replica_of(machine, 0))
            for key, (offset, value) in self.last.items():
                found = kept.get(key, [])
                if value is None and found and found[-1][1] is not None:
                    raise Violation(f"{machine.name}: {key!r} was deleted at {offset}, and is back: {found}")
                if value is not None and offset >= self.deleted and (offset, value) not in found:
                    raise Violation(f"{machine.name}: {key!r} lost its value at {offset}: {found}")

        self._check_epochs()

    def _check_epochs(self) -> None:
        """All know where epochs began, and nobody has what an election gave up."""
        lineage = [epoch for epoch, _ in self.leader_log().epochs.entries()]
        for machine in self.machines:
            log = replica_of(machine, 0).log
            # Where a log begins, the epoch does that is in force there.
            wrong = [
                entry for entry in log.epochs.entries() if log.start_offset < entry[1] != self.began[entry[0]]
            ]
            if wrong:
                raise Violation(f"{machine.name}: {wrong} did not begin there, but at {self.began}")
            for segment in log.segments:
                for _, header in segment.walk(0, segment.size, wait=True):
                    offset, epoch = header.base_offset, header.leader_epoch
                    later = [
                        successor
                        for successor in lineage
                        if successor > epoch and self.began[successor] <= offset
                    ]
                    if offset >= log.start_offset and (later or offset < self.began[epoch]):
                        raise Violation(
                            f"{machine.name} has {offset} of epoch {epoch}, which {later} gave up"
                        )

    @contextmanager
    def _elections(self) -> Iterator[None]:
        lead = Partition.lead

        def noted(state: PartitionState, world: World, rules: Rules) -> PartitionState:
            after = react(state, world, rules)
            claims = (*state.isr, *state.eligible, *state.suspects)
            if after.leader > 0 and after.leader not in claims:
                self.unclean = True
            return after

        def begins(partition: Partition, epoch: int, leading: Leading | None) -> None:
            lead(partition, epoch, leading)
            if (partition.topic, partition.index) == (TOPIC, 0):
                self.began[epoch] = partition.log.end_offset

        with patch.object(controller, "react", noted), patch.object(Partition, "lead", begins):
            yield


def _has_opened(machine: SimBroker) -> bool:
    assert machine.broker is not None
    topic = machine.broker.table.by_name.get(TOPIC.encode())
    return topic is not None and 0 in topic.partitions
