"""`penstock broker-admin …`: the brokers of a cluster, emptied before they go and given their share when they come."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import Session, command
from penstock.cli.errors import INTERRUPTED, CommandError
from penstock.cli.output import print_json, print_table
from penstock.core.text import count_text, size_text

if TYPE_CHECKING:
    from penstock.client.admin.brokers import ClusterAdmin
    from penstock.client.admin.cluster_info import BrokerInfo, ClusterInfo
    from penstock.client.topic_partition import TopicPartition

_POLL_SECONDS = 0.5
# Nothing moves, and the controller says why: long enough that it means this drain.
_STUCK_SECONDS = 5.0
# How long the controller may take to give an empty broker its share by itself.
_FILL_SECONDS = 5.0

Broker = Annotated[int, typer.Argument(min=0, metavar="ID", help="The broker's number.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Show how far it is until it is done.")]


def register(app: typer.Typer) -> None:
    brokers = typer.Typer(no_args_is_help=True)
    app.add_typer(brokers, name="broker-admin", help="Look at the brokers of a cluster, drain and add them.")
    command(brokers, "list", examples=("penstock broker-admin list",))(list_)
    command(
        brokers,
        "drain",
        examples=("penstock broker-admin drain 3", "penstock broker-admin drain 3 --no-wait"),
    )(drain)
    command(brokers, "add", examples=("penstock broker-admin add 4",))(add)


def list_(session: Session) -> None:
    """Every broker: where it is, how it is, and what it holds."""
    with _admin(session) as admin:
        found = admin.look()
    if session.json:
        print_json([broker_json(broker) for broker in found.brokers.values()])
        return
    print_brokers(found)
    if found.trouble:
        print(found.trouble)


def drain(session: Session, broker: Broker, wait: Wait = True) -> None:
    """Move all replicas of a broker to others, so that it can be stopped; it serves them until others have them.

    It takes no new ones until `broker-admin add`. Ctrl-C leaves the drain going on. The replicas of a broker that is
    dead are rebuilt from the other copies at once, and the cluster forgets it.
    """
    with _admin(session) as admin:
        found = admin.look()
        broker_info = _known(found, broker)
        if not any(
            other.is_live and not _is_leaving(other)
            for other in found.brokers.values()
            if other != broker_info
        ):
            raise CommandError(f"no other broker can take the replicas of broker {broker}: start one first")
        if broker_info.is_live:
            admin.set_draining(broker, (broker_info.host, broker_info.port), value=True)
        else:
            admin.forget(broker)
        if not session.json:
            size = "" if broker_info.size_bytes is None else f" ({size_text(broker_info.size_bytes)})"
            print(
                f"{count_text(broker_info.replicas, 'replica')}{size} of broker {broker} move to others",
                flush=True,
            )
        if wait:
            _watch(
                session, broker, lambda: _until_empty(session, admin, broker, was_live=broker_info.is_live)
            )
        _say_drained(session, admin.look(), broker, done=wait, was_live=broker_info.is_live)


def add(session: Session, broker: Broker, wait: Wait = True) -> None:
    """Let a broker that runs take replicas (again), and move its share of all replicas and leaders to it.

    What is left of a drain is taken back. Ctrl-C leaves the moves going on.
    """
    with _admin(session) as admin:
        found = admin.look()
        broker_info = _known(found, broker)
        if not broker_info.is_live:
            raise CommandError(f"broker {broker} is dead: start it first, then add it")
        if _is_leaving(broker_info):
            admin.set_draining(broker, (broker_info.host, broker_info.port), value=False)
            leaving = {place: None for place, each in found.moving.items() if broker in each.removing}
            if leaving:
                admin.reassign(leaving)  # those that have gone too far are refused, and come back later
        _spread(admin, broker)
        if wait:
            _watch(session, broker, lambda: _until_filled(session, admin, broker))
            firsts = admin.look().partitions.items()
            admin.elect_preferred(
                place
                for place, each in firsts
                if each.target[:1] == (broker,) and broker in each.in_sync and each.leader != broker
            )
        after = admin.look().brokers[broker]
    if session.json:
        print_json(broker_json(after))
    elif wait:
        print(
            f"broker {broker} is in service: {count_text(after.replicas, 'replica')}, "
            f"{count_text(after.leaders, 'leader')}"
        )
    else:
        print(f"broker {broker} takes replicas; `penstock status` shows how far it is")


# -- waiting ------------------------------------------------------------------------------------------------------


def _watch(session: Session, broker: int, until: Any) -> None:
    from penstock.cli.command import say_error

    try:
        until()
    except KeyboardInterrupt:
        if not session.json:
            say_error(
                f"the moves go on without us; `penstock status` shows how far they are, `penstock broker-admin list` "
                f"what broker {broker} still holds"
            )
        raise typer.Exit(INTERRUPTED) from None


def _until_empty(session: Session, admin: "ClusterAdmin", broker: int, *, was_live: bool) -> None:
    from penstock.cli.moves import Emptying
    from penstock.cli.progress import Bar

    emptying = Emptying(broker)
    stuck_since: float | None = None
    with Bar(f"draining broker {broker}", quiet=session.json) as bar:
        while True:
            found = admin.look()
            left = found.on(broker)
            known = _tells_what_it_holds(found, broker) if was_live else not _is_silent(found, broker)
            if not left and known:
                return
            done, total = emptying.progress(found)
            bar.show(done, total, f"{count_text(len(left), 'replica')} to go" if known else "no answer")
            moves = any(broker in replicas.removing for replicas in found.moving.values())
            if moves or not (found.trouble or (not known and not left)):
                stuck_since = None
            else:
                stuck_since = stuck_since or time.monotonic()
                if time.monotonic() - stuck_since > _STUCK_SECONDS:
                    raise _stuck(found, broker, len(left))
            time.sleep(_POLL_SECONDS)


def _stuck(found: "ClusterInfo", broker: int, left: int) -> CommandError:
    if not left:
        broker_info = found.brokers.get(broker)
        if broker_info is None or not broker_info.is_live:
            does, advice = "died", "start it again, and do not throw away its data"
        elif _is_silent(found, broker):
            does, advice = "does not answer", "do not stop it"
        else:
            does, advice = "cannot list its logs", "see its log, and do not stop it"
        return CommandError(
            f"broker {broker} {does}, so whether it is empty is not known: {advice} before "
            "`penstock broker-admin list` shows it as drained"
        )
    return CommandError(
        f"broker {broker} cannot be emptied, {count_text(left, 'replica')} stay for now: {found.trouble}; "
        f"the drain goes on when it can, `penstock broker-admin add {broker}` ends it"
    )


def _until_filled(session: Session, admin: "ClusterAdmin", broker: int) -> None:
    from penstock.cli.progress import Bar

    with Bar(f"filling broker {broker}", quiet=session.json) as bar:
        while True:
            found = admin.look()
            coming = [place for place, replicas in found.moving.items() if broker in replicas.adding]
            if not coming:
                return
            copied = [found.copied(place) for place in coming]
            bar.show(
                sum(progress.done_bytes for progress in copied),
                sum(progress.total_bytes for progress in copied),
                f"{count_text(len(coming), 'replica')} on the way",
            )
            time.sleep(_POLL_SECONDS)


def _spread(admin: "ClusterAdmin", broker: int) -> None:
    """Its share of everybody's replicas: an empty broker gets it from the controller, any other from us."""
    from penstock.cli.moves import share_for

    deadline = time.monotonic() + _FILL_SECONDS
    found = admin.look()
    while not found.on(broker) and share_for(found, broker) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        found = admin.look()
    if any(broker in replicas.adding for replicas in found.moving.values()):
        return
    targets: dict[TopicPartition, tuple[int, ...]] = share_for(found, broker)
    if targets:
        refused = admin.reassign(targets)
        if len(refused) == len(targets):
            raise CommandError(f"broker {broker} could not be given replicas: {next(iter(refused.values()))}")


# -- words --------------------------------------------------------------------------------------------------------


def print_brokers(found: "ClusterInfo") -> None:
    print_table(
        ("id", "host", "rack", "state", "replicas", "leaders", "size", ""),
        [
            (
                broker.id,
                f"{broker.host}:{broker.port}" if broker.host else None,
                broker.rack,
                str(broker.state),
                broker.replicas,
                broker.leaders,
                None if broker.size_bytes is None else size_text(broker.size_bytes),
                "controller" if broker.controller else "",
            )
            for broker in found.brokers.values()
        ],
    )


def broker_json(broker: "BrokerInfo") -> dict[str, Any]:
    return {
        "id": broker.id,
        "host": broker.host or None,
        "port": broker.port if broker.port >= 0 else None,
        "rack": broker.rack,
        "host_label": broker.machine,
        "state": str(broker.state),
        "controller": broker.controller,
        "replicas": broker.replicas,
        "leaders": broker.leaders,
        "size_bytes": broker.size_bytes,
        "free_bytes": broker.free_bytes,
    }


def _say_drained(session: Session, found: "ClusterInfo", broker: int, *, done: bool, was_live: bool) -> None:
    after = found.brokers.get(broker)
    if session.json:
        print_json({"id": broker, "state": "forgotten"} if after is None else broker_json(after))
    elif not done:
        print("`penstock status` shows how far it is")
    elif was_live:
        print(f"broker {broker} is drained: it holds no replicas and can be stopped")
    else:
        print(f"all that broker {broker} held is on other brokers again, and the cluster has forgotten it")


def _is_leaving(broker: "BrokerInfo") -> bool:
    from penstock.client.admin.cluster_info import BrokerState

    return broker.state in (BrokerState.DRAINING, BrokerState.DRAINED)


def _is_silent(found: "ClusterInfo", broker: int) -> bool:
    from penstock.client.admin.cluster_info import BrokerState

    broker_info = found.brokers.get(broker)
    return broker_info is not None and broker_info.state is BrokerState.SILENT


def _tells_what_it_holds(found: "ClusterInfo", broker: int) -> bool:
    """In this look: what metadata hides only the broker can tell."""
    broker_info = found.brokers.get(broker)
    return broker_info is not None and broker_info.is_live and broker_info.size_bytes is not None


def _known(found: "ClusterInfo", broker: int) -> "BrokerInfo":
    broker_info = found.brokers.get(broker)
    if broker_info is None:
        known = ", ".join(map(str, found.brokers))
        raise CommandError(
            f"there is no broker {broker}, only {known}: start it with `penstock broker --id {broker} …`"
        )
    return broker_info


def _admin(session: Session) -> "ClusterAdmin":
    from penstock.client.admin.brokers import ClusterAdmin
    from penstock.client.connect import reach

    reach(session.bootstrap)
    return ClusterAdmin(session.bootstrap)
