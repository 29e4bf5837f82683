"""`penstock cluster …`: several brokers with a real ZooKeeper on this machine, to try things and to test against."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.check_data import is_clean, on_disk
from penstock.cli.command import Session, command
from penstock.cli.errors import CommandError
from penstock.cli.output import count_text, print_json, print_table
from penstock.cli.up import TRIED_OUT
from penstock.core.endpoints import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.cli.cluster_processes import LocalCluster
    from penstock.cli.status import Outlook

_COUNT = 3
_REPLICAS_MAX = 3
_ASK_MS = 10_000

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
        int,
        typer.Option(
            min=0, max=65000, help="Port of the first broker; the others follow; 0 picks free ones."
        ),
    ] = 9092,
    zookeeper_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the ZooKeeper; 0 picks a free one.")
    ] = 0,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when all serve, and leave them running.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting for every broker; may be repeated."),
    ] = None,
) -> None:
    """Start a local cluster: one ZooKeeper and some brokers, each a process; in the foreground unless detached.

    Of a cluster that runs, starts what is missing, and returns. Topics get three replicas of which two must be in sync,
    where there are that many brokers. It needs Java 17 and the extras [cluster,spark] (docs/install.md;
    ZooKeeper comes with PySpark).
    """
    import signal

    from penstock.cli.cluster_processes import LocalCluster, require_all
    from penstock.cli.options import parse_pairs

    require_all()
    # SIGTERM ends it as Ctrl-C does, also while it starts.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    given = parse_pairs("--set", set_)
    data_dir = data_dir.absolute()
    data_dir.mkdir(parents=True, exist_ok=True)

    def tell(started: "LocalCluster") -> None:
        if session.json:
            print_json(_facts(started, _ask(started)))
        else:
            print(f"penstock listens on {started.bootstrap}")
            print(f"{count_text(len(started.brokers), 'broker')}, data and logs in {data_dir}", flush=True)

    def stay(started: "LocalCluster") -> None:
        tell(started)
        _wait_for_the_end()
        started.end(data_dir)

    ports = (base_port, zookeeper_port)
    running = LocalCluster.find(data_dir)
    if running is not None and running.is_running:
        tell(_complete(running, count or 0, data_dir, base_port, given))
        return
    count = count or _COUNT
    settings = _defaults(count) | given
    if detach:
        tell(_start(count, data_dir, ports, settings))
    else:
        _start(count, data_dir, ports, settings, stay)


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
                one["id"],
                f"{one['host']}:{one['port']}",
                one["pid"],
                one["state"],
                "controller" if one["controller"] else "",
            )
            for one in facts["brokers"]
        ],
    )
    if outlook is not None:
        outlook.print()


def down(session: Session, data_dir: DataDir = _DEFAULT_DIR) -> None:
    """Stop a local cluster; its data stays."""
    found = _found(data_dir)
    found.end(data_dir.absolute())
    clean = all(is_clean(data_dir / f"broker-{member.id}") for member in found.brokers)
    if session.json:
        print_json({"event": "stopped", "clean": clean})
    else:
        print(f"the cluster has stopped; {on_disk(clean)}")


def _defaults(count: int) -> dict[str, str]:
    replicas = min(count, _REPLICAS_MAX)
    in_sync = 2 if replicas == _REPLICAS_MAX else 1
    return {
        **TRIED_OUT,
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
    }


def _found(data_dir: Path) -> "LocalCluster":
    from penstock.cli.cluster_processes import LocalCluster

    found = LocalCluster.find(data_dir.absolute())
    if found is None:
        raise CommandError(
            f"no cluster was started in {data_dir}: name it with --data-dir, or start one with `penstock cluster up`"
        )
    return found


def _start(
    count: int,
    data_dir: Path,
    chosen_ports: tuple[int, int],
    settings: dict[str, str],
    then: "Callable[[LocalCluster], None]" = lambda _: None,
) -> "LocalCluster":
    """Whatever goes wrong here or in `then`, Ctrl-C too, ends what was started."""
    from penstock.cli.cluster_processes import HOST, LocalCluster, Member, broker_command, end, spawn
    from penstock.cli.start import check_port
    from penstock.testing.zookeeper import ZooKeeperProcess, free_port

    base_port, zookeeper_port = chosen_ports
    ports = [(base_port + at if base_port else free_port(), free_port()) for at in range(count)]
    for port, _ in ports:
        check_port(Address(HOST, port), "--base-port")
    check_port(Address(HOST, zookeeper_port), "--zookeeper-port")
    server = ZooKeeperProcess(data_dir / "zookeeper", port=zookeeper_port or free_port())
    members: list[Member] = []
    try:
        spawn(server.command(), server.log_path, 0, (server.port, -1), members)
        for at, chosen in enumerate(ports, 1):
            place = data_dir / f"broker-{at}"
            line = broker_command(at, place, f"{server.connect}/penstock", chosen, settings)
            spawn(line, data_dir / f"broker-{at}.log", at, chosen, members)
        started = LocalCluster(members[0], members[1:], settings)
        started.save(data_dir)
        then(started)
    except BaseException:
        end(members, data_dir)
        raise
    return started


def _complete(
    running: "LocalCluster", count: int, data_dir: Path, base_port: int, given: dict[str, str]
) -> "LocalCluster":
    """Start what is missing of a cluster that runs, where it was, and brokers up to `count`."""
    from penstock.cli.cluster_processes import HOST, LocalCluster, Member, broker_command, end_one, spawn
    from penstock.cli.start import check_port
    from penstock.testing.zookeeper import ZooKeeperProcess, free_port

    wanted = {one.id: (one.port, one.console_port) for one in running.brokers if not one.is_running}
    for id_ in range(len(running.brokers) + 1, count + 1):
        wanted[id_] = (base_port + id_ - 1 if base_port else free_port(), free_port())
    if not wanted and running.zookeeper.is_running:
        raise CommandError(f"the cluster in {data_dir} runs already: `penstock cluster down` stops it")
    for port, _ in wanted.values():
        check_port(Address(HOST, port), "--base-port")
    settings = running.settings | given
    server = ZooKeeperProcess(data_dir / "zookeeper", port=running.zookeeper.port)
    members: list[Member] = []
    try:
        if not running.zookeeper.is_running:
            spawn(server.command(), server.log_path, 0, (server.port, -1), members)
        for id_, ports in wanted.items():
            line = broker_command(
                id_, data_dir / f"broker-{id_}", f"{server.connect}/penstock", ports, settings
            )
            spawn(line, data_dir / f"broker-{id_}.log", id_, ports, members)
        all_ = {one.id: one for one in (running.zookeeper, *running.brokers, *members)}
        completed = LocalCluster(all_.pop(0), [all_[id_] for id_ in sorted(all_)], settings)
        completed.save(data_dir)
    except BaseException:
        for member in reversed(members):
            end_one(member)
        raise
    return completed


def _wait_for_the_end() -> None:
    """Until Ctrl-C or SIGTERM."""
    import contextlib
    import signal

    with contextlib.suppress(KeyboardInterrupt):
        while True:
            signal.pause()


def _facts(found: "LocalCluster", outlook: "Outlook | None") -> dict[str, Any]:
    from penstock.cli.cluster_processes import HOST

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
                "id": one.id,
                "host": HOST,
                "port": one.port,
                "console_port": one.console_port,
                "pid": one.pid if one.is_running else None,
                "controller": one.id in told and told[one.id].controller,
                "state": str(told[one.id].state) if one.id in told else None,
            }
            for one in found.brokers
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
    from penstock.client.cluster_admin import ClusterAdmin
    from penstock.client.raw import RawError, RawOptions

    if not any(one.is_running for one in found.brokers):
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
