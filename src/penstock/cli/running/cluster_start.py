"""Starting a local cluster: all of it, or what is missing of one that runs."""

from dataclasses import dataclass, replace
from pathlib import Path

from penstock.cli.errors import CommandError
from penstock.cli.running import cluster_processes
from penstock.cli.running.cluster_file import LocalCluster, forget
from penstock.cli.running.cluster_processes import HOST, Member, end_one, spawn
from penstock.cli.running.start import check_port
from penstock.cli.running.up import TRIED_OUT
from penstock.coordination.zookeeper.server_process import ZooKeeperProcess, free_port
from penstock.core.endpoints import Address

_COUNT = 3
_BASE_PORT = 9092
_REPLICAS_MAX = 3


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for; None: as it was, or the default."""

    count: int | None = None
    base_port: int | None = None
    zookeeper_port: int | None = None
    settings: dict[str, str] | None = None


def start(data_dir: Path, found: LocalCluster | None, wish: Wish, begun: list[Member]) -> LocalCluster:
    """Start what does not run yet; each process is one more of `begun`. Whatever goes wrong, Ctrl-C too, ends those."""
    plan = planned(found, wish)
    absent = [member for member in plan.members if not member.is_running]
    if not absent:
        raise CommandError(f"the cluster in {data_dir} runs already: `penstock cluster down` stops it")
    for member in absent:
        check_port(Address(HOST, member.port), "--base-port" if member.id else "--zookeeper-port")
    server = ZooKeeperProcess(data_dir / "zookeeper", port=plan.zookeeper.port)

    def note(member: Member) -> None:
        nonlocal plan
        begun.append(member)
        plan = plan.with_member(member)
        plan.save(data_dir)

    try:
        for member in absent:
            if member.id == plan.zookeeper.id:
                spawn(server.command(), server.log_path, member, note)
                continue
            place = data_dir / f"broker-{member.id}"
            line = cluster_processes.broker_command(
                member, place, f"{server.connect}/penstock", plan.settings
            )
            spawn(line, data_dir / f"{place.name}.log", member, note)
    except BaseException:
        for member in reversed(begun):
            end_one(member)
        if found is None:
            forget(data_dir)
        else:
            found.save(data_dir)
        raise
    return plan


def planned(found: LocalCluster | None, wish: Wish) -> LocalCluster:
    """All that shall run, where it runs or ran before; of a cluster that runs nothing is moved or left out."""
    runs = found is not None and found.is_running
    if found is None:
        known, count = {}, wish.count or _COUNT
    else:
        known = {member.id: member for member in found.members}
        count = max(wish.count or 0, len(found.brokers)) if runs else wish.count or len(found.brokers)
    base_port = _BASE_PORT if wish.base_port is None else wish.base_port
    stays = runs or wish.base_port is None
    brokers = [
        _again(known[id_])
        if stays and id_ in known
        else Member(id_, base_port + id_ - 1 if base_port else free_port(), console_port=free_port())
        for id_ in range(1, count + 1)
    ]
    if 0 in known and (runs or wish.zookeeper_port is None):
        zookeeper = _again(known[0])
    else:
        zookeeper = Member(0, wish.zookeeper_port or free_port())
    return LocalCluster(zookeeper, brokers, _settings(found, count) | (wish.settings or {}))


def _again(member: Member) -> Member:
    """Nobody has chosen where its console is: it gives way to who has taken its place."""
    if member.is_running or member.console_port < 0:
        return member
    try:
        check_port(Address(HOST, member.console_port), "--console-port")
    except CommandError:
        return replace(member, console_port=free_port())
    return member


def _settings(found: LocalCluster | None, count: int) -> dict[str, str]:
    """Those that it was started with; defaults go with the number of brokers, unless some run with others."""
    if found is None:
        return _defaults(count)
    if found.is_running:
        return found.settings
    before = _defaults(len(found.brokers))
    chosen = {name: value for name, value in found.settings.items() if before.get(name) != value}
    return _defaults(count) | chosen


def _defaults(count: int) -> dict[str, str]:
    replicas = min(count, _REPLICAS_MAX)
    in_sync = 2 if replicas == _REPLICAS_MAX else 1
    return {
        **TRIED_OUT,
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
    }
