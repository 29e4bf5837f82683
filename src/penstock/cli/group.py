"""`penstock group …`: look at consumer groups, move them, and forget them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import group_reset
from penstock.cli.command import Session, command
from penstock.cli.output import Cell, print_json, print_table
from penstock.core.text import count_text
from penstock.diagnosis.retries import retries_json, retries_text

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin, GroupInfo

Group = Annotated[str, typer.Argument(help="The group's name.", metavar="GROUP")]


def register(app: typer.Typer) -> None:
    groups = typer.Typer(no_args_is_help=True)
    app.add_typer(groups, name="group", help="Look at consumer groups, move them, and forget them.")
    command(groups, "list", examples=("penstock group list", "penstock group list --json"))(list_)
    command(groups, "describe", examples=("penstock group describe billing",))(describe)
    group_reset.register(groups)
    command(groups, "delete", examples=("penstock group delete billing",))(delete)


def list_(session: Session) -> None:
    """Every consumer group: its state, its members, and how far behind it is."""
    admin = _admin(session)
    kinds = {group.name: group.kind for group in admin.groups()}
    found = admin.describe_groups(list(kinds))
    if session.json:
        print_json(
            [
                {
                    "group": group.name,
                    "state": group.state,
                    "kind": kinds[group.name],
                    "members": len(group.members),
                    "topics": group.topics,
                    "lag": group.lag,
                    "retrying": group.retrying,
                }
                for group in found
            ]
        )
    elif found:
        print_table(
            ("group", "state", "members", "topics", "lag", "retrying"),
            [
                (
                    group.name,
                    state_text(group.state),
                    len(group.members),
                    ",".join(group.topics) or "-",
                    group.lag,
                    group.retrying,
                )
                for group in found
            ],
        )
    else:
        print(
            "no groups yet; one begins with `penstock consume TOPIC --group NAME`, or any consumer's group.id"
        )


def describe(session: Session, group: Group) -> None:
    """One group: who is in it, what each member reads, and how far behind it is.

    The lag counts offsets from what is committed to the end of the partition. Where nothing was ever committed, all
    that the partition holds counts. Messages that failed and wait for another try are told apart from it.
    """
    admin = _admin(session)
    found = admin.describe_group(group)
    retries = admin.retries_of(found)
    if session.json:
        print_json({**_as_json(found), "retries": retries_json(retries)})
        return
    members = count_text(len(found.members), "member")
    assignor = f"  assigned by {found.assignor}" if found.assignor else ""
    print(f"{found.name}  {state_text(found.state)}  {members}{assignor}  lag {found.lag:,}")
    if found.offsets:
        print_table(
            ("topic", "partition", "committed", "latest", "lag", "client", "host"), _partition_rows(found)
        )
    if found.members:
        print()
        print_table(("member", "client", "host", "instance", "partitions"), _member_rows(found))
    for topic in found.deleted_topics:
        print(f"topic {topic} was deleted; what was committed for it expires")
    if found.never_read:
        size = sum(offset.lag for offset in found.never_read)
        where = count_text(len(found.never_read), "partition")
        print(f"never read: {size:,} of the lag, in {where} for which nothing was ever committed")
    for retry in retries:
        print(f"retries: {retries_text(retry)}")
    if found.lag:
        print(f"`penstock why {found.name}` tells why it lags")


def _partition_rows(found: "GroupInfo") -> list[tuple[Cell, ...]]:
    members = {member.id: member for member in found.members}
    rows: list[tuple[Cell, ...]] = []
    for offset in found.offsets:
        owner = members.get(offset.member or "")
        read_by = (owner.client_id, owner.host) if owner else (None, None)
        rows.append((offset.topic, offset.partition, offset.committed, offset.latest, offset.lag, *read_by))
    return rows


def _member_rows(found: "GroupInfo") -> list[tuple[Cell, ...]]:
    return [
        (member.id, member.client_id, member.host, member.instance_id, len(member.partitions))
        for member in sorted(found.members, key=lambda member: member.id)
    ]


def delete(session: Session, group: Group) -> None:
    """Forget a group and everything it committed, at once and without asking. It must have no members."""
    _admin(session).delete_group(group)
    if session.json:
        print_json({"group": group, "deleted": True})
    else:
        print(f"deleted group {group}")


def state_text(state: str) -> str:
    """As people say it: librdkafka's names have underscores."""
    return state.replace("_", " ")


def _admin(session: Session) -> "Admin":
    from penstock.client.admin.admin import Admin

    return Admin(session.bootstrap, debug=session.debug)


def _as_json(found: "GroupInfo") -> dict[str, Any]:
    return {
        "group": found.name,
        "state": found.state,
        "coordinator": found.coordinator,
        "assignor": found.assignor or None,
        "lag": found.lag,
        "never_read": sum(offset.lag for offset in found.never_read),
        "retrying": found.retrying,
        "members": [
            {
                "id": member.id,
                "client_id": member.client_id,
                "host": member.host,
                "instance_id": member.instance_id,
                "partitions": [{"topic": topic, "partition": index} for topic, index in member.partitions],
            }
            for member in found.members
        ],
        "partitions": [
            {
                "topic": offset.topic,
                "partition": offset.partition,
                "committed": offset.committed,
                "earliest": offset.earliest,
                "latest": offset.latest,
                "lag": offset.lag,
                "member": offset.member,
            }
            for offset in found.offsets
        ],
        "deleted_topics": list(found.deleted_topics),
    }
