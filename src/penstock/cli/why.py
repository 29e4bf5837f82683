"""`penstock why GROUP`: why a group lags, or does nothing but rebalance, and what mends it."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import Session, command
from penstock.cli.errors import CommandError
from penstock.cli.options import parse_duration
from penstock.cli.output import print_json, print_table

if TYPE_CHECKING:
    from penstock.cli.group_watch import Flow, Watch
    from penstock.client.admin import Admin

_EXAMPLES = ("penstock why billing", "penstock why billing --over 30s", "penstock why billing --json")
# Between two looks: often enough to see members come and go, rarely enough to cost the broker nothing.
_LOOK_SECONDS = 1.0
_ROWS_MAX = 20


def register(app: typer.Typer) -> None:
    command(app, "why", examples=_EXAMPLES)(why)


def why(
    session: Session,
    group: Annotated[str, typer.Argument(help="The group's name.", metavar="GROUP")],
    over: Annotated[
        str, typer.Option(metavar="TIME", help="How long to watch: members that commit rarely need longer.")
    ] = "3s",
) -> None:
    """Tell why a consumer group lags or rebalances, and what mends it.

    Looks at its members, commits and topics for a few seconds and says what moved and what did not: members that
    do not get on, partitions without an owner, commits that retention has overtaken, members that come and go.
    Changes nothing.
    """
    seconds = parse_duration("--over", over)
    from penstock.cli.check_group import group_findings
    from penstock.cli.findings import print_findings
    from penstock.client.admin import Admin

    watch = _watch(Admin(session.bootstrap, debug=session.debug), group, seconds)
    findings = group_findings(watch)
    if session.json:
        print_json(
            {
                "group": group,
                "state": watch.last.state,
                "seconds": round(watch.seconds, 3),
                "lag": watch.last.lag,
                "lag_before": watch.first.lag,
                "findings": [one.as_json() for one in findings],
                "partitions": [_as_json(flow) for flow in watch.flows],
            }
        )
        return
    print_findings(findings)
    _print_partitions(watch)


def _watch(admin: "Admin", group: str, seconds: float) -> "Watch":
    from penstock.cli.group_watch import Watch
    from penstock.client.errors import ClientError

    try:
        looks = [admin.describe_group(group)]
    except ClientError as error:
        raise _other_name(admin, group, error) from error
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        time.sleep(min(_LOOK_SECONDS, seconds - passed))
        looks.append(admin.describe_group(group))
    return Watch(tuple(looks), time.monotonic() - begun)


def _other_name(admin: "Admin", name: str, error: Exception) -> Exception:
    """Whoever asks about a topic wants to know about its groups."""
    if name not in {topic.name for topic in admin.topics()}:
        return error
    groups = admin.describe_groups([one.name for one in admin.groups()])
    known = [one.name for one in groups if name in one.topics]
    if not known:
        return CommandError(f"{name} is a topic, and no group reads it: see `penstock topic describe {name}`")
    return CommandError(
        f"{name} is a topic: ask about a group that reads it, such as `penstock why {known[0]}`"
    )


def _print_partitions(watch: "Watch") -> None:
    behind = sorted((flow for flow in watch.flows if flow.lag), key=lambda flow: -(flow.lag or 0))
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
        "written": flow.written,
        "read": flow.read,
        "member": flow.member,
    }
