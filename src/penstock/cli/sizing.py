"""How many machines, how much disk and network a load needs: a pure function of the load and of what was measured.

The broker does not open batches, so what it costs is counted in bytes and in requests, not in messages:

    cores = GB/s produced x (leader + followers + groups that read it) + requests/s x cost of one

All of it is planned so that the load still fits into `USABLE_SHARE` when one machine is lost.
"""

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

GB = 1e9


class Figure(NamedTuple):
    """Measured: a number, and the row of docs/benchmarks.md that has it (`a > b`: the first b below a)."""

    value: float
    row: str


PRODUCE_SECONDS_PER_GB = Figure(0.69, "broker CPU per GB produced, 1 kB")
CONSUME_SECONDS_PER_GB = Figure(0.275, "broker CPU per GB consumed, 1 kB")
# Of three brokers together: what a leader and two followers cost.
THREE_COPIES_SECONDS_PER_GB = Figure(5.31, "… CPU of all processes per GB")
REQUESTS_PER_SECOND = Figure(114_492, "one-message requests, pipelined on one connection")
DISK_MB_PER_SECOND = Figure(443, "30 GB at full speed: event-loop lag p99 > … throughput")
COPY_MB_PER_SECOND = Figure(410, "a wiped follower copies")
CONSUMER_MESSAGES_PER_SECOND = Figure(402_143, "consume loop, 100 B")

FOLLOWER_SECONDS_PER_GB = (THREE_COPIES_SECONDS_PER_GB.value - PRODUCE_SECONDS_PER_GB.value) / 2

USABLE_SHARE = (
    0.7  # of cores, network and disk speed: the rest is for surges, for readers that catch up, for rebuilding
)
FILL_SHARE = 0.8  # of a disk: below a tenth free it gets no more replicas (`penstock.disk.free.percent.min`)
BATCH_HEADER_BYTES = 61
RECORD_HEADER_BYTES = (
    12  # lengths, deltas of time and offset; the SDK's message id comes on top, with the headers
)
INDEX_SHARE = 24 / 4096  # an entry of both indexes per `index.interval.bytes`
SEGMENT_BYTES = 1 << 30  # `segment.bytes`: the active one is never deleted
SEGMENT_SECONDS = 7 * 86_400  # `segment.ms`
BROKER_MEMORY_BYTES = 250e6  # with 10,000 connections it had 177 MB: docs/benchmarks.md
CACHED_SECONDS = 60  # of what is written: readers that keep up are served from memory
PARTITIONS_PER_BROKER_MIN = 2


@dataclass(frozen=True, slots=True)
class Load:
    messages_per_second: float
    message_bytes: float
    retention_seconds: float
    replicas: int = 3
    groups: int = 1  # that each read everything
    batch_bytes: float = 16_384  # as producers send them, before compression
    compression: float = 1.0  # 4 when batches shrink to a quarter

    @property
    def requests_per_second(self) -> float:
        return self.messages_per_second / self.messages_per_batch

    @property
    def messages_per_batch(self) -> float:
        return max(1.0, self.batch_bytes / (self.message_bytes + RECORD_HEADER_BYTES))

    @property
    def bytes_per_second(self) -> float:
        """As they go over the wire and to the disk, of one copy."""
        record = (self.message_bytes + RECORD_HEADER_BYTES) / self.compression
        return self.messages_per_second * (record + BATCH_HEADER_BYTES / self.messages_per_batch)


@dataclass(frozen=True, slots=True)
class Machine:
    cores: int = 8
    network_bytes_per_second: float = 1.25e9  # 10 Gbit/s, in each direction
    disk_bytes_per_second: float = DISK_MB_PER_SECOND.value * 1e6
    disk_bytes: float | None = None  # None: as large as it has to be


@dataclass(frozen=True, slots=True)
class Plan:
    load: Load
    machines: int
    machines_by: dict[str, int]  # what each need alone would ask for
    brokers_per_machine: int
    partitions: int
    cores_busy: float  # of all machines together
    disk_bytes: float  # of each machine, as bought
    network_in_bytes_per_second: float  # of each machine, on average
    network_out_bytes_per_second: float
    memory_bytes: float  # of each machine
    rebuild_seconds: float  # until an empty machine has its copies

    @property
    def limited_by(self) -> str:
        return max(self.machines_by, key=lambda need: self.machines_by[need])


def cores_busy(load: Load) -> float:
    seconds_per_gb = (
        PRODUCE_SECONDS_PER_GB.value
        + FOLLOWER_SECONDS_PER_GB * (load.replicas - 1)
        + CONSUME_SECONDS_PER_GB.value * load.groups
    )
    return load.bytes_per_second / GB * seconds_per_gb + load.requests_per_second / REQUESTS_PER_SECOND.value


def make_plan(load: Load, machine: Machine) -> Plan:
    cores, rate = cores_busy(load), load.bytes_per_second
    written, sent = rate * load.replicas, rate * (load.replicas - 1 + load.groups)
    brokers_alone = ceil(cores / USABLE_SHARE)
    consumers = ceil(load.messages_per_second / CONSUMER_MESSAGES_PER_SECOND.value)
    partitions = max(PARTITIONS_PER_BROKER_MIN * max(brokers_alone, load.replicas), consumers)
    disk = _disk_bytes(load, partitions)
    # One machine may be lost, where there are copies: what is left carries the load.
    spare = 1 if load.replicas > 1 else 0
    by = {
        "copies": load.replicas,
        "cores": ceil(cores / (machine.cores * USABLE_SHARE)) + spare,
        "network": ceil(max(written, sent) / (machine.network_bytes_per_second * USABLE_SHARE)) + spare,
        "disk speed": ceil(written / (machine.disk_bytes_per_second * USABLE_SHARE)) + spare,
    }
    if machine.disk_bytes is not None:
        by["disk space"] = ceil(disk / machine.disk_bytes) + spare
    machines = max(by.values())
    # With as many machines as copies each has one of everything; with more the others take over what one had.
    disk_each = disk / (machines - spare if machines > load.replicas else machines)
    brokers = max(1, ceil(brokers_alone / (machines - spare or 1)))
    kept = disk_each * FILL_SHARE
    copied = min(COPY_MB_PER_SECOND.value * 1e6, machine.network_bytes_per_second * USABLE_SHARE)
    return Plan(
        load=load,
        machines=machines,
        machines_by=by,
        brokers_per_machine=brokers,
        partitions=max(partitions, PARTITIONS_PER_BROKER_MIN * brokers * machines),
        cores_busy=cores,
        disk_bytes=disk_each,
        network_in_bytes_per_second=written / machines,
        network_out_bytes_per_second=sent / machines,
        memory_bytes=brokers * BROKER_MEMORY_BYTES + written / machines * CACHED_SECONDS,
        rebuild_seconds=kept / copied,
    )


def _disk_bytes(load: Load, partitions: int) -> float:
    """Of all machines: what retention keeps, the segment behind that which is not deleted yet, and free space."""
    kept = load.bytes_per_second * load.retention_seconds
    active = min(SEGMENT_BYTES, load.bytes_per_second / partitions * SEGMENT_SECONDS) * partitions
    return (kept + active) * load.replicas * (1 + INDEX_SHARE) / FILL_SHARE
