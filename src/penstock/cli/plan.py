"""`penstock plan`: how many machines, how much disk and network a load needs, and why."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import Session, command
from penstock.cli.options import parse_count, parse_duration, parse_size
from penstock.cli.output import print_json, print_table
from penstock.core.text import count_text, size_text

if TYPE_CHECKING:
    from penstock.cli.sizing import Machine, Plan

_EXAMPLES = (
    "penstock plan --rate 50k --size 1kB --retention 14d",
    "penstock plan --rate 10M --size 128B --retention 3d --batch 4kB --cores 16 --network 25Gbit",
    "penstock plan --rate 200k --size 500B --retention 7d --compression 4 --groups 3 --disk 2TB --json",
)
_BITS_PER_BYTE = 8


def register(app: typer.Typer) -> None:
    command(app, "plan", examples=_EXAMPLES)(plan)


def plan(
    session: Session,
    rate: Annotated[
        str, typer.Option(metavar="COUNT", help="Messages per second at the peak: 500, 20k, 3M.")
    ],
    size: Annotated[str, typer.Option(metavar="SIZE", help="Of one message: key, value and headers.")],
    retention: Annotated[str, typer.Option(metavar="TIME", help="How long messages are kept.")] = "14d",
    replicas: Annotated[int, typer.Option(min=1, max=9, help="Copies of each message.")] = 3,
    groups: Annotated[int, typer.Option(min=0, help="Consumer groups that read all of it.")] = 1,
    batch: Annotated[
        str, typer.Option(metavar="SIZE", help="Of one batch as producers send it (linger.ms, batch.size).")
    ] = "16kB",
    compression: Annotated[
        float, typer.Option(min=1.0, help="How much smaller batches get: 4 for a quarter.")
    ] = 1.0,
    cores: Annotated[int, typer.Option(min=1, help="Of one machine.")] = 8,
    network: Annotated[str, typer.Option(metavar="SPEED", help="Of one machine.")] = "10Gbit",
    disk_speed: Annotated[
        str, typer.Option(metavar="SIZE", help="That its disk writes in a second, for long.")
    ] = "440MB",
    disk: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Of one machine (default: as large as it has to be)."),
    ] = None,
) -> None:
    """Say how many machines, how much disk, network and memory a load needs, and why.

    Goes by the figures of docs/benchmarks.md, which were measured on a small machine, and leaves room for one lost
    machine and for surges. Talks to no broker. Measure your own with `penstock bench` before you buy.
    """
    from penstock.cli.sizing import Load, Machine, make_plan

    load = Load(
        messages_per_second=parse_count("--rate", rate),
        message_bytes=parse_size("--size", size),
        retention_seconds=parse_duration("--retention", retention),
        replicas=replicas,
        groups=groups,
        batch_bytes=parse_size("--batch", batch),
        compression=compression,
    )
    machine = Machine(
        cores=cores,
        network_bytes_per_second=parse_count("--network", network, unit="bit") / _BITS_PER_BYTE,
        disk_bytes_per_second=parse_size("--disk-speed", disk_speed),
        disk_bytes=parse_size("--disk", disk) if disk is not None else None,
    )
    made = make_plan(load, machine)
    if session.json:
        print_json(_as_json(made))
        return
    print_table(["what", "needed", "because"], _rows(made, machine))


def _rows(plan: "Plan", machine: "Machine") -> list[tuple[str, str, str]]:
    from penstock.cli import sizing

    load = plan.load
    went_in, went_out = plan.network_in_bytes_per_second, plan.network_out_bytes_per_second
    reasons = {
        "brokers": f"{plan.cores_busy:.2f} cores busy in all; one broker uses one core (--workers), planned up to "
        f"{sizing.USABLE_SHARE:.0%}",
        "partitions": f"{sizing.PARTITIONS_PER_BROKER_MIN} or more for each broker, and one for each consumer: "
        f"a Python loop takes some {sizing.CONSUMER_MESSAGES_PER_SECOND.value:,.0f} messages/s",
        "disk": f"{_copies(load.replicas)} for {_time(load.retention_seconds)}, and one segment more for each "
        f"partition; {sizing.FILL_SHARE:.0%} full",
        "network": f"in: {_copies(load.replicas)}; out: {count_text(load.replicas - 1, 'follower')} and "
        f"{count_text(load.groups, 'group')}; a link has {size_text(machine.network_bytes_per_second)}/s each way",
        "memory": f"the brokers, and the last {sizing.CACHED_SECONDS} s in the page cache for readers that keep up",
        "rebuilding": f"an empty machine copies at up to {sizing.COPY_MB_PER_SECOND.value:.0f} MB/s",
    }
    return [
        ("load", f"{size_text(load.bytes_per_second)}/s", _load_reason(plan)),
        ("machines", str(plan.machines), _machines_reason(plan)),
        ("brokers on each", str(plan.brokers_per_machine), reasons["brokers"]),
        ("partitions", str(plan.partitions), reasons["partitions"]),
        ("disk on each", size_text(plan.disk_bytes), reasons["disk"]),
        ("network on each", f"{size_text(went_in)}/s in, {size_text(went_out)}/s out", reasons["network"]),
        ("memory on each", size_text(plan.memory_bytes), reasons["memory"]),
        ("rebuilding one", _time(plan.rebuild_seconds), reasons["rebuilding"]),
    ]


def _load_reason(plan: "Plan") -> str:
    load = plan.load
    smaller = f", compressed to 1/{load.compression:g}" if load.compression > 1 else ""
    return (
        f"{load.messages_per_second:,.0f} messages/s of {size_text(load.message_bytes)} in "
        f"{load.requests_per_second:,.0f} batches/s{smaller}"
    )


def _machines_reason(plan: "Plan") -> str:
    """What asks for most, and what the others would ask for."""
    needs = sorted(plan.machines_by.items(), key=lambda need: -need[1])
    told = ", ".join(f"{name} {count}" for name, count in needs)
    lost = "; one may be lost" if plan.load.replicas > 1 else "; one copy: a lost disk is lost data"
    return f"decided by {plan.limited_by} ({told}){lost}"


def _copies(replicas: int) -> str:
    return count_text(replicas, "copy", "copies")


def _time(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}".replace(".0 ", " ")
    return f"{seconds:.0f} s"


def _as_json(plan: "Plan") -> dict[str, Any]:
    return {
        "bytes_per_second": round(plan.load.bytes_per_second),
        "requests_per_second": round(plan.load.requests_per_second),
        "machines": plan.machines,
        "machines_by": plan.machines_by,
        "limited_by": plan.limited_by,
        "brokers_per_machine": plan.brokers_per_machine,
        "partitions": plan.partitions,
        "cores_busy": round(plan.cores_busy, 3),
        "disk_bytes_each": round(plan.disk_bytes),
        "network_in_bytes_per_second_each": round(plan.network_in_bytes_per_second),
        "network_out_bytes_per_second_each": round(plan.network_out_bytes_per_second),
        "memory_bytes_each": round(plan.memory_bytes),
        "rebuild_seconds": round(plan.rebuild_seconds),
    }
