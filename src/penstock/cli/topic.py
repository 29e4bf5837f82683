"""`penstock topic …`: make, look at, change and delete topics."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from penstock.cli.command import Session, command, say_error
from penstock.cli.errors import CommandError, WrongUseError
from penstock.cli.options import parse_pairs
from penstock.cli.output import print_json, print_table
from penstock.core.errors import PenstockError
from penstock.core.text import count_text

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin, TopicInfo

_RETIRE_TO = "penstock.retire.to"

Name = Annotated[str, typer.Argument(help="The topic's name.", metavar="NAME")]
Partitions = Annotated[int | None, typer.Option(min=1, help="How many partitions (default: the broker's).")]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="A setting of the topic; may be repeated."),
]


def register(app: typer.Typer) -> None:
    topics = typer.Typer(no_args_is_help=True)
    app.add_typer(topics, name="topic", help="Make, look at, change and delete topics.")
    command(
        topics,
        "create",
        examples=(
            "penstock topic create orders --partitions 3",
            "penstock topic create audit --config retention.ms=-1 --config penstock.ack.after=synced",
        ),
    )(create)
    command(topics, "list", examples=("penstock topic list", "penstock topic list --internal --json"))(list_)
    command(topics, "describe", examples=("penstock topic describe orders",))(describe)
    command(
        topics,
        "alter",
        examples=(
            "penstock topic alter orders --partitions 6",
            "penstock topic alter orders --replicas 3 --config min.insync.replicas=2",
            "penstock topic alter orders --partitions 2 --retire   # fewer: the others are retired",
            "penstock topic alter orders --config retention.ms=86400000 --delete-config segment.bytes",
        ),
    )(alter)
    command(topics, "delete", examples=("penstock topic delete orders",))(delete)


def create(
    session: Session,
    name: Name,
    partitions: Partitions = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="How many copies of each partition (default: the broker's).")
    ] = None,
    config: Config = None,
) -> None:
    """Make a topic."""
    configs = parse_pairs("--config", config)
    admin = _admin(session)
    admin.create(name, partitions=partitions, replicas=replicas, configs=configs)
    tell_without_effect(configs)
    made = admin.describe_new(name)
    if session.json:
        print_json(_as_json(made))
    else:
        sizes = f"{count_text(len(made.partitions), 'partition')}, {count_text(made.replicas, 'replica')}"
        print(f"made topic {name} with {sizes} each; fill it with `penstock produce {name}`")


def tell_without_effect(configs: Mapping[str, str]) -> None:
    """Kafka's settings that are taken, shown, and not asked for here."""
    from penstock.config.topic_settings import TOPIC_SETTINGS

    for key in configs:
        if key in TOPIC_SETTINGS and TOPIC_SETTINGS[key].without_effect:
            say_error(f"{key} is kept, but has no effect here")


def list_(
    session: Session,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also those in which the broker keeps its own state.")
    ] = False,
) -> None:
    """Every topic of the broker."""
    found = [topic for topic in _admin(session).topics() if internal or not topic.internal]
    if session.json:
        print_json([{"name": t.name, "partitions": len(t.partitions), "replicas": t.replicas} for t in found])
    elif found:
        print_table(
            ("topic", "partitions", "replicas"), [(t.name, len(t.partitions), t.replicas) for t in found]
        )
    else:
        print("no topics yet; make one with `penstock topic create NAME`")


def describe(session: Session, name: Name) -> None:
    """One topic: its partitions, what they hold, and the settings it has of its own."""
    topic = _admin(session).describe(name)
    if session.json:
        print_json(_as_json(topic))
        return
    messages = sum(_held(p.earliest, p.latest) for p in topic.partitions)
    print(f"{topic.name}  id {topic.id}  {count_text(messages, 'offset')} in use")
    print_table(
        ("partition", "leader", "replicas", "in sync", "earliest", "latest"),
        [
            (p.index, p.leader, _ids(p.replicas), _ids(p.in_sync), p.earliest, p.latest)
            for p in topic.partitions
        ],
    )
    for key, value in (topic.configs or {}).items():
        print(f"{key} = {value}")
    _tell_retired(topic)
    if not topic.configs:
        print("no settings of its own; set one with `penstock topic alter NAME --config name=value`")


def alter(
    session: Session,
    name: Name,
    partitions: Partitions = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="How many copies of each partition; waits until they are there.")
    ] = None,
    retire: Annotated[
        bool, typer.Option("--retire", help="Fewer partitions are meant, not mistyped: do not ask.")
    ] = False,
    config: Config = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config", metavar="NAME", help="Back to the broker's default; may be repeated."
        ),
    ] = None,
) -> None:
    """Change a topic: more partitions, or fewer, other settings."""
    changed = parse_pairs("--config", config)
    if partitions is None and replicas is None and not changed and not delete_config:
        raise WrongUseError("nothing to change: give --partitions, --replicas, --config or --delete-config")
    admin = _admin(session)
    counts = [] if partitions is None else [partitions]
    with suppress(KeyError, ValueError):  # what is no number, the broker refuses
        counts.append(int(changed[_RETIRE_TO]))  # the same wish, in the broker's words
    before = admin.describe(name) if counts else None
    if before is not None and min(counts) < before.staying and not retire:
        _confirm_retiring(session, before, min(counts))  # before anything is changed
    with _Steps() as steps:
        if changed or delete_config:
            admin.alter_configs(name, changed, delete_config or ())
            steps.done.append("the settings are changed")
            tell_without_effect(changed)
        if before is not None and partitions is not None:
            if partitions < before.staying:
                admin.retire_partitions(name, partitions)
                steps.done.append(f"all but {partitions} partitions are being retired")
            else:
                admin.add_partitions(name, partitions)
                steps.done.append(f"there are {partitions} partitions")
        if replicas is not None:
            from penstock.cli.topic_replicas import set_replicas

            set_replicas(session, name, replicas)
    topic = admin.describe(name)
    if session.json:
        print_json(_as_json(topic))
        return
    own = (
        ", ".join(f"{key}={value}" for key, value in (topic.configs or {}).items())
        or "no settings of its own"
    )
    print(f"topic {name} now has {count_text(len(topic.partitions), 'partition')} and {own}")
    _tell_retired(topic)


class _Steps:
    """One that fails says what those before it have changed already."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self.done and isinstance(error, PenstockError):
            raise CommandError(f"{error}; before that, {' and '.join(self.done)}") from error


def _confirm_retiring(session: Session, topic: "TopicInfo", partitions: int) -> None:
    """A 3 meant as 30 would end 27 partitions, and there is no way back until they are gone."""
    retired = count_text(topic.staying - partitions, "partition")
    if session.json or not sys.stdin.isatty():
        raise WrongUseError(
            f"{topic.name} has {topic.staying} partitions: this would retire {retired}; say so with --retire"
        )
    typer.confirm(f"{topic.name} has {topic.staying} partitions: retire {retired}?", abort=True)


def delete(session: Session, name: Name) -> None:
    """Delete a topic and all its messages, at once and without asking."""
    _admin(session).delete(name)
    if session.json:
        print_json({"name": name, "deleted": True})
    else:
        print(f"deleted topic {name}")


def _admin(session: Session) -> "Admin":
    from penstock.client.admin.admin import Admin

    return Admin(session.bootstrap, debug=session.debug)


def _tell_retired(topic: "TopicInfo") -> None:
    if topic.staying < len(topic.partitions):
        retired = ", ".join(str(p.index) for p in topic.partitions[topic.staying :])
        print(
            f"being retired: {retired}; still readable until retention passes, "
            f"what is written there goes to the first {topic.staying}"
        )


def _held(earliest: int | None, latest: int | None) -> int:
    return 0 if earliest is None or latest is None else latest - earliest


def _ids(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _as_json(topic: "TopicInfo") -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": topic.id,
        "configs": dict(topic.configs or {}),
        "partitions": [
            {
                "partition": p.index,
                "leader": p.leader,
                "replicas": list(p.replicas),
                "in_sync": list(p.in_sync),
                "earliest": p.earliest,
                "latest": p.latest,
                "retired": p.index >= topic.staying,
            }
            for p in topic.partitions
        ],
    }
