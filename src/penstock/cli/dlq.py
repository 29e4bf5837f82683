"""`penstock dlq …`: messages that were given up, and sending them back."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import Session, command
from penstock.cli.output import print_json, print_table
from penstock.core.text import count_text
from penstock.diagnosis.retries import due_text, retries_text

if TYPE_CHECKING:
    from penstock.client.admin.admin import Retries
    from penstock.client.message import Message
    from penstock.client.retry.dead_letters import DeadLetterBox

Topic = Annotated[str, typer.Argument(help="The topic they were first sent to.", metavar="TOPIC")]
Group = Annotated[str, typer.Option("--group", metavar="GROUP", help="The group that gave them up.")]
Most = Annotated[int | None, typer.Option("--max", min=1, metavar="N", help="At most so many.")]

_SHOWN_CHARACTERS = 60


def register(app: typer.Typer) -> None:
    letters = typer.Typer(no_args_is_help=True)
    app.add_typer(letters, name="dlq", help="Look at messages that were given up, and send them back.")
    command(letters, "list", examples=("penstock dlq list", "penstock dlq list --json"))(list_)
    command(letters, "show", examples=("penstock dlq show orders --group billing --max 10",))(show)
    command(
        letters,
        "replay",
        examples=(
            "penstock dlq replay orders --group billing",
            "penstock dlq replay orders --group billing --max 1",
        ),
    )(replay)


def list_(session: Session) -> None:
    """Every dead-letter topic, how many messages wait in it, and how many may still come: those that are retried."""
    found = _box(session).all()
    if session.json:
        print_json(
            [
                {
                    "topic": letters.topic,
                    "group": letters.group,
                    "dead_letters": letters.name,
                    "waiting": letters.waiting,
                    "replayed": letters.replayed,
                    "retrying": 0 if letters.retries is None else letters.retries.waiting,
                    "due_ms": None if letters.retries is None else letters.retries.due_ms,
                }
                for letters in found
            ]
        )
    elif found:
        print_table(
            ("topic", "group", "waiting", "replayed", "retrying", "due"),
            [
                (letters.topic, letters.group, letters.waiting, letters.replayed, *_retrying(letters.retries))
                for letters in found
            ],
        )
    else:
        print("no dead letters; consumers with retry=Retry(dead_letter=True) put there what never works")


def show(session: Session, topic: Topic, group: Group, most: Most = None) -> None:
    """The messages that wait: what they are, how often they were tried, and why they failed."""
    box = _box(session)
    found = list(box.messages(topic, group, most=most))
    if session.json:
        print_json([_as_json(message) for message in found])
    elif found:
        rows = [
            (
                f"{message.origin.topic}[{message.origin.partition}]@{message.origin.offset}",
                _short(message.key),
                _short(message.raw_value),
                message.attempt - 1,
                _error(message),
            )
            for message in found
        ]
        print_table(("origin", "key", "value", "tries", "error"), rows)
    else:
        print(f"no dead letters of {topic} wait for group {group}")
    retries = None if session.json else box.retries(topic, group)
    if retries is not None:
        print(f"retries: {retries_text(retries)}; what fails once too often comes here")


def replay(session: Session, topic: Topic, group: Group, most: Most = None) -> None:
    """Send the messages back to the topic they came from, as they were first sent.

    They go into their old partitions, and keep their timestamps unless retention could take them before they are read.
    Every group of that topic sees them again. They stay in the dead-letter topic, but are not replayed twice.
    """
    done = _box(session).replay(topic, group, most=most)
    if session.json:
        print_json({"topic": topic, "group": group, "replayed": done})
    else:
        print(f"replayed {count_text(done, 'message')} into {topic}")


def _retrying(retries: "Retries | None") -> tuple[int, str | None]:
    return (0, None) if retries is None else (retries.waiting, due_text(retries))


def _box(session: Session) -> "DeadLetterBox":
    from penstock.client.retry.dead_letters import DeadLetterBox

    return DeadLetterBox(session.bootstrap)


def _error(message: "Message") -> str:
    from penstock.client.retry import headers as retry_headers

    return retry_headers.error(message.headers)


def _short(data: bytes | None) -> str:
    text = "" if data is None else " ".join(data.decode("utf-8", "replace").split())
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def _as_json(message: "Message") -> dict[str, Any]:
    from penstock.cli.consume import as_text
    from penstock.client.retry import headers as retry_headers

    origin = message.origin
    return {
        "origin": {"topic": origin.topic, "partition": origin.partition, "offset": origin.offset},
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp,
        "id": message.id,
        **as_text("key", message.key),
        **as_text("value", message.raw_value),
        "tries": message.attempt - 1,
        "error": retry_headers.error(message.headers),
        "history": retry_headers.history(message.headers),
    }
