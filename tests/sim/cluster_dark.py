"""Four machines that lose their power without a word while replicas move and the minimum changes, by chance.

Nobody's port refuses and no session ends when the power goes, so those that are dead count as live for a while. What
may be lost, and so is not done to them, is as in `cluster_story`; a partition's only replica has synced what it
acknowledged, and may go dark at any time.
"""

from tests.sim.cluster_moving import MovingStory, _try, wanted_replicas
from tests.sim.cluster_story import watched
from tests.sim.messages import PARTITIONS
from tests.sim.test_cluster_scenes import altering

from penstock.testing.sim_broker import SimBroker
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

FAULTS = (
    "dark", "dark", "dark", "blackout", "blackout", "blackout", "kill", "stop", "move", "move", "move", "one", "one",
    "cancel", "minimum", "regret", "regret", "lower", "lower",
)  # fmt: skip


class DarkStory(MovingStory):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self._dark: dict[SimBroker, None] = {}  # a dict for its order: the simulation repeats exactly

    def tell(self) -> None:
        with watched(self.history):
            self.begin_with(4, replicas=self.rng.choice([2, 2, 3]))
            self._set_minimum()
            for _ in range(self.rng.randint(4, 9)):
                self.let_pass(self.rng.choice([0.02, 0.1, 0.5, 1.0]))
                self.misfortune()
            self.heal()
            self.check_progress()
            self.check_data()

    def misfortune(self) -> None:
        rng = self.rng
        machine = rng.choice(self.machines)
        match rng.choice(FAULTS):
            case "dark":
                self._go_dark(machine)
            case "blackout":
                self._black_out()
            case "kill" if machine.running:
                self.turn_off(machine, power=False)
            case "stop" if machine.ready:
                self._stop(machine)
            case "one":
                self._shrink(rng.randrange(PARTITIONS))
            case "move" | "cancel" as what:
                target = None if what == "cancel" else rng.sample(range(1, 5), rng.choice([2, 3]))
                request = wanted_replicas(rng.randrange(PARTITIONS), target)
                self.spawn("admin", _try(machine.name, ApiKey.ALTER_PARTITION_REASSIGNMENTS, request))
            case "minimum":
                self._set_minimum()
            case "regret":
                self._regret(rng.randrange(PARTITIONS))
            case "lower":
                self._lower(rng.randrange(PARTITIONS))

    def _set_minimum(self, value: str | None = None) -> None:
        request = altering("min.insync.replicas", value or self.rng.choice(["1", "2"]))
        machine = self.rng.choice([broker for broker in self.machines if broker.ready] or self.machines)
        self.spawn("admin", _try(machine.name, ApiKey.INCREMENTAL_ALTER_CONFIGS, request))

    def _shrink(self, index: int) -> None:
        """One of those in sync is to be the only replica; its disk is busy, and then its power goes."""
        rng = self.rng
        chosen = rng.choice(self.state(index).isr or (1,))
        machine = self.machines[chosen - 1]
        self.loop.slow_down(machine.name, rng.choice([1, 1000, 5000, 5000]))
        request = wanted_replicas(index, [chosen])
        self.spawn(
            "admin", _try(rng.choice(self.machines).name, ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
        )
        if rng.random() < 0.7:
            self._wait_until(lambda: self.state(index).replicas == (chosen,))
        self.let_pass(rng.choice([0.0, 0.01, 0.1]))
        if rng.random() < 0.8:
            self._go_dark(machine)
        self.loop.slow_down(machine.name, 1)

    def _regret(self, index: int) -> None:
        """A move is taken back when its newcomer is one of the few in sync, and then the power of the leader goes."""
        state = self.state(index)
        away = next(
            (
                replica
                for replica in state.isr
                if replica != state.leader and self.machines[replica - 1].ready
            ),
            None,
        )
        newcomer = next((broker for broker in range(1, 5) if broker not in state.replicas), None)
        if away is None or newcomer is None or state.leader < 0:
            return
        leader = self.machines[state.leader - 1]
        self.loop.network.stall(leader.name, self.machines[newcomer - 1].name)
        self._ask_to_move(index, [away, newcomer])
        self._wait_until(lambda: newcomer in self.state(index).replicas)
        self._stop(self.machines[away - 1])
        self.loop.network.heal(leader.name, self.machines[newcomer - 1].name)
        self._wait_until(lambda: newcomer in self.state(index).isr)
        self.let_pass(self.rng.choice([0.1, 0.3]))
        self._ask_to_move(index, None)
        self.let_pass(self.rng.choice([0.05, 0.3]))
        self._go_dark(leader)

    def _lower(self, index: int) -> None:
        """Of two that have to be in sync one goes dark, the other stops, and then one is enough."""
        state = self.state(index)
        others = [
            replica for replica in state.isr if replica != state.leader and self.machines[replica - 1].ready
        ]
        if not others or state.leader < 0:
            return
        follower = self.machines[others[0] - 1]
        self._go_dark(self.machines[state.leader - 1])
        if follower.ready:
            self._stop(follower)
            self.let_pass(self.rng.choice([0.05, 0.2]))
        self._set_minimum("1")

    def _ask_to_move(self, index: int, target: list[int] | None) -> None:
        at = self.rng.choice([machine for machine in self.machines if machine.ready] or self.machines)
        request = wanted_replicas(index, target)
        self.spawn("admin", _try(at.name, ApiKey.ALTER_PARTITION_REASSIGNMENTS, request))

    def _black_out(self) -> None:
        """All go dark but one of those that have everything, and that is stopped or killed before anybody is missed."""
        state = self.state(self.rng.randrange(PARTITIONS))
        whole = [replica for replica in state.isr if self.machines[replica - 1].ready]
        if not whole:
            return
        kept = self.machines[self.rng.choice(whole) - 1]
        others = [machine for machine in self.machines if machine is not kept]
        for machine in self.rng.sample(others, len(others)):
            if self.rng.random() < 0.8:
                self._go_dark(machine)
        self.let_pass(self.rng.choice([0.0, 0.02, 0.2]))
        match self.rng.choice(["stop", "kill", "move", "nothing"]):
            case "stop" if kept.ready:
                self._stop(kept)
            case "kill" if kept.running:
                self.turn_off(kept, power=False)
            case "move" if kept.ready:
                target = [self.machines.index(broker) + 1 for broker in self._dark][:3]
                request = wanted_replicas(self.rng.randrange(PARTITIONS), target or None)
                self.spawn("admin", _try(kept.name, ApiKey.ALTER_PARTITION_REASSIGNMENTS, request))

    def _stop(self, machine: SimBroker) -> None:
        machine.stop()
        self._down[machine] = self.loop.time() + self.rng.choice([0.0, 0.5, 2.0])

    def _go_dark(self, machine: SimBroker) -> None:
        if not machine.running or not self.may_lose_power(machine):
            return
        for other in self.machines:
            if other is not machine:
                self.loop.network.stall(machine.name, other.name)
        self._dark[machine] = None
        self.turn_off(machine, power=True)

    def _restart_due(self) -> None:
        for machine in [broker for broker in self._dark if self._down.get(broker, 0.0) <= self.loop.time()]:
            del self._dark[machine]
            for other in self.machines:
                if other is not machine and other not in self._dark:
                    self.loop.network.heal(machine.name, other.name)
        super()._restart_due()

    def may_lose_power(self, machine: SimBroker) -> bool:
        number = self.machines.index(machine) + 1
        safe = {
            index + 1
            for index, broker in enumerate(self.machines)
            if broker.ready
            and broker is not machine
            and broker not in self._dark
            and self._is_settled(broker)
        }
        on_their_way = [
            partition.leading.pending.members()
            for broker_info in self.machines
            if broker_info.broker is not None
            for partition in broker_info.broker.table.partitions()
            if partition.leading is not None and partition.leading.pending is not None
        ]
        shared = [state.isr for state in self.states() if state.replicas != (number,)]
        return all(safe & ({*members} - {number}) for members in (*shared, *on_their_way))

    def is_quiet(self, replicas: int) -> bool:
        return all(
            not state.adding and not state.removing and {*state.isr} == {*state.replicas}
            for state in self.states()
        )


def tell(seed: int) -> None:
    with SimLoop(seed) as loop:
        DarkStory(loop).tell()
