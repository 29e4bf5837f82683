"""`penstock cluster …`: several brokers with a real ZooKeeper on this machine, to try things and to test against."""

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import Session, command
from penstock.cli.errors import CommandError
from penstock.cli.output import print_json, print_table
from penstock.core.text import count_text
from penstock.diagnosis.data_dir import is_clean, on_disk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cli.running.cluster_file import LocalCluster
    from penstock.cli.running.cluster_processes import Member
    from penstock.cli.status import Outlook

_ASK_MS = 10_000
# How soon an `up` in the foreground sees that somebody else has ended its cluster.
_LOOK_SECONDS = 0.2

DataDir = Annotated[Path, typer.Option(help="Where the whole cluster is kept.")]
_DEFAULT_DIR = Path("cluster")


def register(app: typer.Typer) -> None:
    clusters = typer.Typer(no_args_is_help=True)
    app.add_typer(clusters, name="cluster", help="Run several brokers with a ZooKeeper on this machine.")
    command(
        clusters, "up", examples=("penstock cluster up", "penstock cluster up -n 5 --data-dir c --detach")
    )(up)
    command(clusters, "status", examples=("penstock cluster status --json",))(status)
    command(clusters, "down", examples=("penstock cluster down",))(down)


def up(
    session: Session,
    count: Annotated[
        int | None,
        typer.Option("-n", min=1, max=100, help="How many brokers (default: 3, or as many as it has)."),
    ] = None,
    data_dir: DataDir = _DEFAULT_DIR,
    base_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65000,
            help="Port of the first broker; the others follow; 0 picks free ones (default: 9092, or where they were).",
        ),
    ] = None,
    zookeeper_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port of the ZooKeeper; 0 picks a free one (the default at first)."
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when all serve, and leave them running.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting for every broker; may be repeated."),
    ] = None,
) -> None:
    """Start a local cluster: one ZooKeeper and some brokers, each a process; in the foreground unless detached.

    Of a cluster that runs, starts what is missing, and returns. One that was stopped starts again with as many brokers,
    its settings and its ports. Topics get three replicas of which two must be in sync, where there are that many
    brokers. It needs Java 17 and the extras [cluster,spark] (docs/install.md; ZooKeeper comes with PySpark).
    """
    import signal

    from penstock.cli.options import parse_pairs
    from penstock.cli.running.cluster_file import LocalCluster, end_own, locked
    from penstock.cli.running.cluster_processes import require_all
    from penstock.cli.running.cluster_start import Wish, start

    require_all()
    # SIGTERM ends it as Ctrl-C does, also while it starts.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    wish = Wish(count, base_port, zookeeper_port, parse_pairs("--set", set_))
    data_dir = data_dir.absolute()
    data_dir.mkdir(parents=True, exist_ok=True)
    begun: list[Member] = []
    stays = not detach
    try:
        with locked(data_dir):
            found = LocalCluster.find(data_dir)
            if found is not None and found.is_running:
                stays = False  # it is not ours to end
            started = start(data_dir, found, wish, begun)
        _tell(session, started, data_dir)
        if stays:
            _wait_for_the_end(begun)
    finally:
        if stays and begun:
            with locked(data_dir):
                end_own(begun, data_dir)


def _tell(session: Session, started: "LocalCluster", data_dir: Path) -> None:
    if session.json:
        print_json(_facts(started, _ask(started)))
    else:
        print(f"penstock listens on {started.bootstrap}")
        print(f"{count_text(len(started.brokers), 'broker')}, data and logs in {data_dir}", flush=True)


def status(session: Session, data_dir: DataDir = _DEFAULT_DIR) -> None:
    """Who runs, who is the controller, which partitions lack replicas, and what moves."""
    found = _found(data_dir)
    outlook = _ask(found)
    facts = _facts(found, outlook)
    if session.json:
        print_json(facts)
        return
    zookeeper = facts["zookeeper"]
    print(f"ZooKeeper on port {zookeeper['port']}, {_pid_text(zookeeper['pid'])}")
    print_table(
        ("broker", "address", "process", "state", "role"),
        [
            (
                fact["id"],
                f"{fact['host']}:{fact['port']}",
                fact["pid"],
                fact["state"],
                "controller" if fact["controller"] else "",
            )
            for fact in facts["brokers"]
        ],
    )
    if outlook is not None:
        outlook.print()


def down(session: Session, data_dir: DataDir = _DEFAULT_DIR) -> None:
    """Stop a local cluster; its data stays."""
    from penstock.cli.running.cluster_file import locked

    _found(data_dir)
    with locked(data_dir):
        found = _found(data_dir)
        found.end(data_dir.absolute())
    clean = all(is_clean(data_dir / f"broker-{member.id}") for member in found.brokers)
    if session.json:
        print_json({"event": "stopped", "clean": clean})
    else:
        print(f"the cluster has stopped; {on_disk(clean)}")


def _found(data_dir: Path) -> "LocalCluster":
    from penstock.cli.running.cluster_file import LocalCluster

    found = LocalCluster.find(data_dir.absolute())
    if found is None:
        raise CommandError(
            f"no cluster was started in {data_dir}: name it with --data-dir, or start one with `penstock cluster up`"
        )
    if found.was_stopped:
        raise CommandError(f"the cluster in {data_dir} is stopped: `penstock cluster up` starts it again")
    return found


def _wait_for_the_end(begun: "Sequence[Member]") -> None:
    """Until Ctrl-C or SIGTERM, or until somebody else has ended all of them."""
    with contextlib.suppress(KeyboardInterrupt):
        while any(member.is_running for member in begun):
            time.sleep(_LOOK_SECONDS)


def _facts(found: "LocalCluster", outlook: "Outlook | None") -> dict[str, Any]:
    from penstock.cli.running.cluster_processes import HOST

    told = {} if outlook is None else outlook.found.brokers
    facts: dict[str, Any] = {
        "bootstrap": found.bootstrap,
        "zookeeper": {
            "host": HOST,
            "port": found.zookeeper.port,
            "pid": found.zookeeper.pid if found.zookeeper.is_running else None,
        },
        "brokers": [
            {
                "id": broker.id,
                "host": HOST,
                "port": broker.port,
                "console_port": broker.console_port,
                "pid": broker.pid if broker.is_running else None,
                "controller": broker.id in told and told[broker.id].controller,
                "state": str(told[broker.id].state) if broker.id in told else None,
            }
            for broker in found.brokers
        ],
        "partitions": None,
        "under_replicated": None,
        "offline": None,
    }
    if outlook is not None:
        facts |= {name: value for name, value in outlook.as_json().items() if name not in ("id", "brokers")}
    return facts


def _ask(found: "LocalCluster") -> "Outlook | None":
    """What a broker says of the cluster; None when none answers."""
    from penstock.cli.status import Outlook
    from penstock.client.admin.brokers import ClusterAdmin
    from penstock.client.raw import RawError, RawOptions

    if not any(broker.is_running for broker in found.brokers):
        return None
    try:
        with ClusterAdmin(found.bootstrap, RawOptions(api_timeout_ms=_ASK_MS)) as admin:
            outlook = Outlook(admin)
            outlook.look(twice=True)
    except RawError:
        return None
    return outlook


def _pid_text(pid: int | None) -> str:
    return "not running" if pid is None else f"process {pid}"
