"""`penstock broker`: one broker with everything said explicitly, for service managers and containers."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.command import Session, command
from penstock.cli.errors import WrongUseError

_EXAMPLES = (
    "penstock broker --config /etc/penstock.toml",
    "penstock broker --id 1 --listener 0.0.0.0:9092 --data-dir /var/lib/penstock",
    "penstock broker --id 1 --listener 0.0.0.0:9092 --data-dir /var/lib/penstock --zookeeper zk1:2181/penstock",
    "penstock broker --id 10 --workers 4 --listener 0.0.0.0:9092 --data-dir /data --zookeeper zk1:2181/penstock",
)


ZooKeeper = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT[/PATH]",
        help="The ZooKeeper of its cluster, several hosts with commas; without, it is one of its own.",
    ),
]
WorkerCount = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=256,
        help="So many brokers as one service: with ids, ports and data dirs from the given ones on.",
    ),
]
ConsolePort = Annotated[
    int | None,
    typer.Option(min=-1, max=65535, help="Port of /metrics and /healthz; 0 picks a free one, -1 none."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A broker setting; may be repeated."),
]


def register(app: typer.Typer) -> None:
    command(app, "broker", examples=_EXAMPLES)(broker)


def broker(
    session: Session,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file of settings; flags and environment win over it.")
    ] = None,
    id_: Annotated[int | None, typer.Option("--id", min=0, help="This broker's number.")] = None,
    listener: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address to listen on, port 0 picks a free one; several go by --set listeners=.",
        ),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where messages and metadata are kept.")] = None,
    zookeeper: ZooKeeper = None,
    rack: Annotated[str | None, typer.Option(help="The rack it stands in.")] = None,
    host_label: Annotated[
        str | None, typer.Option(help="The machine it runs on: replicas never share one.")
    ] = None,
    workers: WorkerCount = None,
    console_port: ConsolePort = None,
    set_: Settings = None,
) -> None:
    """Run one broker, configured by a file or by flags, until SIGTERM or Ctrl-C.

    Without --config, say who it is: --id, --listener and --data-dir. One broker uses one core: with --workers N
    a machine runs N of them, broker ID to ID+N-1, as one service with one metrics endpoint. No two of them have a
    replica of the same partition.
    """
    from penstock.cli.options import parse_pairs
    from penstock.cli.running import start

    flags = parse_pairs("--set", set_)
    named = {"--id": id_, "--listener": listener or flags.get("listeners"), "--data-dir": data_dir}
    missing = [option for option, value in named.items() if value is None]
    if config is None and missing:
        raise WrongUseError(f"{', '.join(missing)} missing: give them, or a file with --config")
    given = {
        "node.id": id_,
        "log.dirs": data_dir,
        "zookeeper.connect": zookeeper,
        "broker.rack": rack,
        "penstock.host.label": host_label,
        "penstock.console.port": console_port,
    }
    flags |= {name: str(value) for name, value in given.items() if value is not None}
    address = start.parse_address(listener) if listener is not None else None
    settings = start.load_config(flags, address, config)
    if workers is None:
        start.serve(settings, session)
        return
    from penstock.cli.running.workers import Crew, run_workers

    arguments = [] if config is None else ["--config", str(config)]
    for name, value in flags.items():
        arguments += ["--set", f"{name}={value}"]
    arguments += ["--debug"] if session.debug else []
    run_workers(Crew(settings, workers, arguments), session)
