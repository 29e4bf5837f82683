"""One partition over the real decisions, with everything around them made up: brokers that are told late, asked twice
and die, and a controller that knows only who is registered.

Real: `controller.election`, `controller.moves`, `controller.in_sync`, `replication.leading`, and what `IsrKeeper` asks
for. Logs are lists of (epoch, value); what is beyond `synced` is in a page cache, and goes with the power, or where a
log fails.

What may be lost, and so is not done to them: a power cut or a log that fails spares one other that is in sync, up and
has not crashed (also by what a leader has asked for and the controller does not know yet), or was in sync and has
everything. A partition's only replica is asked for nothing but what it has synced.
"""

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.property.copies_replica import Replica

from penstock.controller import election, moves
from penstock.controller.election import ReplicaEnd, Rules, World
from penstock.controller.in_sync import WantedIsr, decide
from penstock.coordination.nodes import PartitionState
from penstock.replication.isr_keeper import _REFUSALS

if TYPE_CHECKING:
    from penstock.replication.leading import Proposal

BROKERS = (1, 2, 3, 4)
TOPIC = bytes(16)


class LostError(Exception):
    """Something committed is nowhere, or the partition stands still."""


class Model:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.now = 0.0
        self.committed: list[tuple[int, int]] = []
        self.values = 0
        self.min_isr = self.dice.choice([1, 2, 2, 3])
        row = tuple(self.dice.sample(BROKERS, self.dice.choice([1, 2, 2, 3, 3])))
        self.asked: list[tuple[int, int, int, Proposal]] = []
        # Of replicas that were asked how far they are: the state and the lives then, and what they told.
        self.ends: tuple[PartitionState, list[int], dict[int, ReplicaEnd]] | None = None
        self.lives = dict.fromkeys(BROKERS, 0)
        self.image: Any = SimpleNamespace(
            brokers={broker: SimpleNamespace(epoch=broker, stopping=False) for broker in BROKERS},
            lives={broker: SimpleNamespace(settled=True) for broker in BROKERS},
            topics_by_id={},
        )
        self.state = PartitionState(row, row, row[0])
        self._store(self.state)
        self.registrations = len(BROKERS)
        self.replicas = {broker: Replica(self, broker) for broker in BROKERS}
        for replica in self.replicas.values():
            replica.learn()

    def tell(self, chapters: int) -> None:
        """Quiet times, in which something is written and moved, and others in which everything happens at once."""
        for _ in range(chapters):
            for _ in range(self.dice.randint(0, 4)):
                self.quiet_round()
            for _ in range(self.dice.choice([3, 6, 12, 25])):
                self.step()
        self.heal()

    # -- the store and the checker --

    def _store(self, state: PartitionState) -> None:
        if state is not self.state:
            self.state = replace(state, partition_epoch=self.state.partition_epoch + 1)
        self.image.topics_by_id[TOPIC] = SimpleNamespace(partitions=[self.state])

    def commit(self, records: list[tuple[int, int]], by: int) -> None:
        self.check(records, by, len(records))
        self.committed += records[len(self.committed) :]

    def check(self, records: list[tuple[int, int]], leader: int, below: int | None = None) -> None:
        wanted = self.committed if below is None else self.committed[:below]
        if records[: len(wanted)] != wanted:
            raise LostError(
                f"{leader} leads {self.state} with {len(records)} records, {wanted} are committed"
            )

    # -- the controller --

    def _world(self) -> World:
        brokers = self.image.brokers
        return World(
            live=sorted(brokers),
            unsettled=[broker for broker in BROKERS if not self.image.lives[broker].settled],
            stopping=[broker for broker in sorted(brokers) if brokers[broker].stopping],
        )

    @property
    def rules(self) -> Rules:
        return Rules(self.min_isr)

    def look(self) -> None:
        self._store(election.react(self.state, self._world(), self.rules))
        self._store(moves.hand_over(self.state, self._world()))
        self._store(moves.grown(self.state, self._world()))
        for life in self.image.lives.values():
            life.settled = True
        if not election.needs_log_ends(self.state, self._world(), self.rules):
            return
        if self.ends is None or self.ends[:2] != (self.state, self._lives()):
            asked = [self.replicas[broker] for broker in self.state.replicas if broker in self.image.brokers]
            ends = {replica.number: replica.end() for replica in asked if replica.up and not replica.failed}
            self.ends = self.state, self._lives(), ends
            if self.dice.random() < 0.3:
                return  # the last answer is late
        _, _, ends = self.ends
        self.ends = None
        after = election.lead_by_log_end(self.state, ends)
        if after is not None:
            self._store(after)

    def _lives(self) -> list[int]:
        """Whoever begins anew is noticed by these, not one that is dead and still registered."""
        return [self.lives[broker] for broker in self.state.replicas]

    def answer(self) -> None:
        """One of the requests that are on their way arrives, or is lost, in any order."""
        if not self.asked:
            return
        leader, broker_epoch, leader_epoch, proposal = self.asked.pop(self.dice.randrange(len(self.asked)))
        asker = self.replicas[leader]
        if asker.epoch != broker_epoch or self.dice.random() < 0.1:
            return
        wanted = WantedIsr(TOPIC, 0, leader_epoch, proposal.partition_epoch, proposal.isr)
        decided = decide(self.image, leader, wanted, self.rules)
        if isinstance(decided, PartitionState):
            self._store(decided)
        elif decided in _REFUSALS and asker.leading is not None and self.dice.random() < 0.8:
            partition: Any = asker
            asker.keeper._refused(partition, proposal)

    def move(self) -> None:
        match self.dice.choice(["begin", "begin", "cancel", "prefer"]):
            case "begin":
                target = self.dice.sample(BROKERS, self.dice.choice([1, 2, 2, 3]))
                self._store(moves.begin(self.state, target))
            case "cancel" if moves.is_moving(self.state):
                self._store(moves.cancel(self.state))
            case "prefer":
                self._store(moves.prefer(self.state, self._world()))

    # -- faults --

    def go_dark(self, replica: Replica) -> None:
        """The process ends, and nobody hears of it. With its power goes what is not synced, where that is allowed."""
        if self._may_lose_power(replica.number) and self.dice.random() < 0.7:
            replica.records = replica.records[
                : self.dice.randint(min(replica.synced, len(replica.records)), len(replica.records))
            ]
            replica.synced = min(replica.synced, len(replica.records))
        replica.open_again()
        replica.up, replica.crashed = False, True
        replica.forget()

    def fail(self, replica: Replica) -> None:
        """Its log goes offline; of what was not synced the disk has dropped some.

        What it has asked for may be lost before: then it is asked for again, by one that has less now.
        """
        if self.dice.random() < 0.5:
            self.asked = [asked for asked in self.asked if asked[0] != replica.number]
        if not replica.failed and self._may_lose_power(replica.number):
            end = len(replica.records)
            replica.left = self.dice.randint(min(replica.synced, end), end)

    def begin_anew(self, replica: Replica) -> None:
        """As if it had crashed; when that is dealt with, its log is opened again."""
        if replica.failed and not replica.told:
            replica.told = True
            self._register(replica.number, settled=False)
        elif replica.failed and self.image.lives[replica.number].settled:
            replica.open_again()
            replica.forget()
            replica.learn()

    def _may_lose_power(self, number: int) -> bool:
        if self.state.replicas == (number,):
            return True
        safe = {
            broker
            for broker, replica in self.replicas.items()
            if broker != number and replica.up and not replica.failed and not replica.incomplete
            if replica.epoch >= 0 and self.image.lives[broker].settled
        }
        on_their_way = [
            proposal.members()
            for _, _, _, proposal in self.asked
            if proposal.partition_epoch == self.state.partition_epoch
        ]
        whole = {
            broker
            for broker in safe & {*self.state.suspects}
            if self.replicas[broker].records[: len(self.committed)] == self.committed
        }
        is_safe = bool(safe & {*self.state.isr} or whole)
        return is_safe and all(safe & {*members} for members in on_their_way)

    def stop(self, replica: Replica) -> None:
        """Cleanly: all of it is on its disk."""
        registered = self.image.brokers.get(replica.number)
        if registered is not None:
            registered.stopping = True
            self.look()
            replica.sync()
            replica.up, replica.crashed = False, replica.failed
            replica.open_again()
            replica.forget()
            del self.image.brokers[replica.number]

    def _register(self, number: int, *, settled: bool) -> None:
        self.registrations += 1
        self.image.brokers[number] = SimpleNamespace(epoch=self.registrations, stopping=False)
        if not settled:
            self.image.lives[number].settled = False
            self.lives[number] += 1

    def start(self, replica: Replica) -> None:
        self._register(replica.number, settled=not replica.crashed)
        replica.up = True
        replica.forget()
        replica.learn()

    def step(self) -> None:
        dice = self.dice
        self.now += dice.choice([0.01, 0.1, 0.5])
        replica = self.replicas[
            dice.choice(dice.choice([BROKERS, self.state.replicas, self.state.isr or BROKERS]))
        ]
        what = dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        match what:
            case "start" | "learn" if replica.up and replica.epoch < 0:
                self._register(replica.number, settled=True)  # the same process, in a new session
            case "look":
                self.look()
            case "answer":
                self.answer()
            case "move":
                self.move()
            case "minimum":
                self.min_isr = dice.choice([1, 2, 3])
            case "expire" if not replica.up or dice.random() < 0.3:
                self.image.brokers.pop(replica.number, None)
            case "start" if not replica.up:
                self.start(replica)
            case _ if replica.up:
                self._act(replica, what)

    def _act(self, replica: Replica, what: str) -> None:
        match what:
            case "fetch":
                replica.fetch(self.dice.choice([1, 2, 9]))
            case "write":
                self.write()
            case "learn":
                replica.learn()
            case "hear":
                replica.hear_of_the_minimum()
            case "sync":
                replica.sync()
            case "ask":
                replica.ask()
            case "dark":
                self.go_dark(replica)
            case "stop":
                self.stop(replica)
            case "fail":
                self.fail(replica)
            case "anew":
                self.begin_anew(replica)

    # -- the end --

    def heal(self) -> None:
        """All are back, nobody dies any more: all replicas are in sync, nothing moves, what is written is committed."""
        for replica in self.replicas.values():
            if not replica.up:
                self.start(replica)
            elif replica.epoch < 0:
                self._register(replica.number, settled=True)
        for _ in range(60):
            for replica in self.replicas.values():
                replica.hear_of_the_minimum()
                self.begin_anew(replica)
            self.quiet_round(writes=False)
            if self._is_whole():
                return
        raise LostError(f"it stands still: {self.state}")

    def quiet_round(self, *, writes: bool = True) -> None:
        self.now += 0.1
        self.look()
        if writes:
            self.write()
        for replica in self.replicas.values():
            if replica.up:
                replica.learn()
                if replica.syncs and (not writes or self.dice.random() < 0.3):
                    replica.sync()
                replica.fetch(9)
                replica.fetch(9)
                replica.ask()
        while self.asked:
            self.answer()

    def write(self) -> None:
        for replica in self.replicas.values():
            self.values += 1
            replica.write(self.values)

    def _is_whole(self) -> bool:
        state = self.state
        if moves.is_moving(state) or state.suspects or state.eligible or {*state.isr} != {*state.replicas}:
            return False
        leader = self.replicas[state.leader]
        return leader.leads and leader.high_watermark == len(leader.records)


_WEIGHTS = {
    "fetch": 20, "write": 5, "learn": 18, "ask": 12, "answer": 12, "look": 12, "sync": 2, "move": 6, "dark": 6,
    "start": 8, "expire": 4, "stop": 3, "minimum": 2, "hear": 3, "fail": 2, "anew": 5,
}  # fmt: skip
