"""A cluster whose brokers run short of descriptors: files cannot be opened or made, nor directories synced.

What is begun is left half done, on disk or in memory, and nothing is opened again; then the power may go, and what is
on the disks has to be enough. All is acknowledged from disks (`synced`), so that all brokers may go dark at once.
"""

from collections.abc import Sequence
from pathlib import Path

from tests.sim.cluster_clients import Violation
from tests.sim.cluster_story import Story

from penstock.core.errors import PenstockError
from penstock.records.batch import check_batch
from penstock.storage.layout import LOG, parse_segment_name
from penstock.testing.mem_files import UNLIMITED_FILES, MemFiles
from penstock.testing.sim_broker import SimBroker
from penstock.testing.sim_loop import SimLoop

# Every few records begin a segment, whose name a sync has to cover.
_SEGMENT_BYTES = 300


class ShortStory(Story):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, synced=True)
        for machine in self.machines:
            machine.may_break = True

    def create(self, configs: dict[str, str]) -> None:
        super().create({**configs, "internal.segment.bytes": str(_SEGMENT_BYTES)})

    def turn_off(self, machine: SimBroker, *, power: bool) -> None:
        """One replica has to keep what it called durable, also where the others would make up for it."""
        logs = (
            []
            if not power or machine.broker is None
            else [partition.log for partition in machine.broker.table.partitions()]
        )
        durable = {log.directory: log.synced_end.offset for log in logs if not log.failed}
        super().turn_off(machine, power=power)
        for directory, offset in durable.items():
            if (end := end_on_disk(machine.files, directory)) < offset:
                raise Violation(f"{machine.name} had {offset} of {directory} on its disk, and has {end}")

    def misfortune(self) -> None:
        if self.rng.random() < 0.3:
            super().misfortune()
            return
        short = [
            broker
            for broker in self.rng.choice([self.machines, [self.rng.choice(self.machines)]])
            if broker.ready
        ]
        self._run_short(short)
        if self.rng.random() < 0.7:
            for machine in short:
                self.turn_off(machine, power=True)

    def _run_short(self, machines: Sequence[SimBroker]) -> None:
        """Now one operation finds no descriptor, now none does that needs one more."""
        rng = self.rng
        for _ in range(rng.randint(1, 10)):
            for machine in machines:
                machine.files.short_in = rng.randint(1, 4)
                if rng.random() < 0.2:
                    machine.files.open_max = len(machine.files.descriptors.live)
            self.let_pass(rng.uniform(0.01, 0.1))
            for machine in machines:
                machine.files.short_in, machine.files.open_max = 0, UNLIMITED_FILES


def end_on_disk(files: MemFiles, directory: Path) -> int:
    """Up to where the segments hold whole batches, one behind the other."""
    end = -1
    for name in files.list_dir(directory):
        base_offset = parse_segment_name(name, LOG)
        if base_offset is None:
            continue
        if end not in (-1, base_offset):
            return end
        end = base_offset
        content, position = memoryview(files.read(directory / name)), 0
        while position < len(content):
            try:
                header = check_batch(content, position)
            except PenstockError:
                return end
            position += header.size_bytes
            end = header.next_offset
    return end
