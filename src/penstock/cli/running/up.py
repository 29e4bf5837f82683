"""`penstock up`: one node, embedded coordination, everything on."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.command import Session, command
from penstock.core.endpoints import Address

_EXAMPLES = (
    "penstock up",
    "penstock up --data-dir /var/lib/penstock --host 0.0.0.0",
    "penstock up --port 0 --set num.partitions=4 --set log.retention.hours=24",
)
# Nobody waits three seconds for other members of a group on a broker that was just tried out.
TRIED_OUT = {"group.initial.rebalance.delay.ms": "0"}


def register(app: typer.Typer) -> None:
    command(app, "up", examples=_EXAMPLES)(up)


def up(
    session: Session,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where messages and metadata are kept (default: data).", show_default=False),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on (default: 127.0.0.1).", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="Port for Kafka clients; 0 picks a free one (default: 9092).",
            min=0,
            max=65535,
            show_default=False,
        ),
    ] = None,
    console_port: Annotated[
        int | None,
        typer.Option(
            help="Port of /metrics and /healthz; 0 picks a free one, -1 none (default: 9080).",
            min=-1,
            max=65535,
            show_default=False,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A broker setting; may be repeated."),
    ] = None,
) -> None:
    """Run a broker on this machine until Ctrl-C.

    Settings have Kafka's names (docs/configuration.md) and come, from strong to weak, from flags, from the
    environment (log.segment.bytes is PENSTOCK_LOG_SEGMENT_BYTES) and from the defaults.
    """
    from penstock.cli.options import parse_pairs
    from penstock.cli.running import start

    flags = parse_pairs("--set", set_)
    if data_dir is not None:
        flags["log.dirs"] = str(data_dir)
    if console_port is not None:
        flags["penstock.console.port"] = str(console_port)
    address = None
    if host is not None or port is not None:
        chosen_port = start.DEFAULT_PORT if port is None else port
        address = Address(host or start.DEFAULT_HOST, chosen_port)
    start.serve(start.load_config(flags, address, defaults=TRIED_OUT), session)
