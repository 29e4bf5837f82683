"""`penstock why GROUP|TOPIC`: why a group lags, or does nothing but rebalance, and what mends it; topics beside it."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import Session, command
from penstock.cli.options import parse_duration
from penstock.cli.output import print_json, print_table

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin
    from penstock.diagnosis.group_watch import Flow, Watch

_EXAMPLES = ("penstock why billing", "penstock why billing --over 30s", "penstock why orders --json")
# Between two looks: often enough to see members come and go, rarely enough to cost the broker nothing.
_LOOK_SECONDS = 1.0
_ROWS_MAX = 20


def register(app: typer.Typer) -> None:
    command(app, "why", examples=_EXAMPLES)(why)


def why(
    session: Session,
    name: Annotated[str, typer.Argument(help="The group's name, or the topic's.", metavar="GROUP|TOPIC")],
    over: Annotated[
        str, typer.Option(metavar="TIME", help="How long to watch: members that commit rarely need longer.")
    ] = "3s",
) -> None:
    """Tell why a consumer group lags or a topic lacks replicas, and what mends it.

    Of a group, looks at members, commits and topics for a few seconds and says what moved and what did not: members
    that do not get on, partitions without an owner, commits that retention has overtaken, members that come and go.
    Of a topic, says which partitions nobody leads, refuse acks=all, or lack replicas, and who is missed; which of
    them move to other brokers, and which are retired, and how far that is; which transaction keeps read_committed
    readers from going on, whose it is and since when. Where both have the name, it is the group.
    Changes nothing.
    """
    seconds = parse_duration("--over", over)
    from penstock.cli.findings import print_findings
    from penstock.client.admin.admin import Admin
    from penstock.diagnosis.group import group_findings
    from penstock.diagnosis.retries import retries_json

    admin = Admin(session.bootstrap, debug=session.debug)
    watch = _watch(admin, name, seconds)
    if watch is None:
        from penstock.cli.why_topic import tell
        from penstock.client.admin.brokers import ClusterAdmin
        from penstock.client.admin.transactions import TransactionAdmin

        with ClusterAdmin(session.bootstrap) as cluster, TransactionAdmin(session.bootstrap) as transactions:
            tell(admin, cluster, transactions, name, json=session.json)
        return
    retries = admin.retries_of(watch.last)
    findings = group_findings(watch, retries)
    if session.json:
        print_json(
            {
                "group": name,
                "state": watch.last.state,
                "seconds": round(watch.seconds, 3),
                "lag": watch.last.lag,
                "lag_before": watch.first.lag,
                "never_read": sum(offset.lag for offset in watch.last.never_read),
                "retries": retries_json(retries),
                "findings": [finding.as_json() for finding in findings],
                "partitions": [_as_json(flow) for flow in watch.flows],
            }
        )
        return
    print_findings(findings)
    _print_partitions(watch)


def _watch(admin: "Admin", group: str, seconds: float) -> "Watch | None":
    """None for a topic of that name, where no group has it."""
    from penstock.client.errors import ClientError
    from penstock.diagnosis.group_watch import Watch

    is_topic = group in {topic.name for topic in admin.topics()}
    # A group that is not there would be waited for, where no broker can coordinate groups yet.
    if is_topic and not _is_listed(admin, group):
        return None
    try:
        looks = [admin.describe_group(group)]
    except ClientError:
        if is_topic:
            return None
        raise
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        time.sleep(min(_LOOK_SECONDS, seconds - passed))
        looks.append(admin.describe_group(group))
    return Watch(tuple(looks), time.monotonic() - begun)


def _is_listed(admin: "Admin", group: str) -> bool:
    """Also where the list may lack some."""
    from penstock.client.errors import ClientError

    try:
        return any(summary.name == group for summary in admin.groups())
    except ClientError:
        return True


def _print_partitions(watch: "Watch") -> None:
    behind = sorted((flow for flow in watch.flows if flow.lag), key=lambda flow: -flow.lag)
    if not behind:
        return
    print()
    print_table(
        ("topic", "partition", "lag", "was", "written/s", "read/s", "client"),
        [
            (
                flow.topic,
                flow.partition,
                flow.lag,
                flow.lag_before,
                flow.written / watch.seconds,
                flow.read / watch.seconds,
                watch.client_of(flow.member),
            )
            for flow in behind[:_ROWS_MAX]
        ],
    )
    if len(behind) > _ROWS_MAX:
        print(f"and {len(behind) - _ROWS_MAX} partitions with less lag; --json has them all")


def _as_json(flow: "Flow") -> dict[str, Any]:
    return {
        "topic": flow.topic,
        "partition": flow.partition,
        "lag": flow.lag,
        "lag_before": flow.lag_before,
        "never_read": flow.never_read,
        "written": flow.written,
        "read": flow.read,
        "member": flow.member,
    }
