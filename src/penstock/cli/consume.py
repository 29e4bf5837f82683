"""`penstock consume`: messages to stdout, without a group."""

import base64
import json
import os
import select
import stat
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from penstock.cli.command import Session, command
from penstock.cli.errors import WrongUseError
from penstock.cli.options import parse_time

if TYPE_CHECKING:
    from confluent_kafka import Message

    from penstock.client.console_reader import ConsoleReader

_EXAMPLES = (
    "penstock consume greetings --from-beginning",
    "penstock consume orders --since 15m --no-follow --format json",
    "penstock consume orders --partition 0 --offset -10 --max 10",
)
# How long one wait for messages lasts: Ctrl-C and a closed pipe are noticed in between.
_WAIT_SECONDS = 0.2


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    command(app, "consume", examples=_EXAMPLES)(consume)


def consume(
    session: Session,
    topic: Annotated[str, typer.Argument(help="What to read.", metavar="TOPIC")],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the oldest message.")
    ] = False,
    offset: Annotated[
        int | None,
        typer.Option(metavar="N", help="Start at this offset; -N starts N messages before the end."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Start at a time: 5m, 2h or 1d ago, 2025-01-31T12:00, or epoch ms."
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(min=0, metavar="P", help="Only this partition; may be repeated.")
    ] = None,
    max_: Annotated[
        int | None, typer.Option("--max", min=1, metavar="N", help="Stop after N messages.")
    ] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="The value alone, or everything as a JSON object per line.")
    ] = Format.TEXT,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for new messages, or stop at the present end.")
    ] = True,
) -> None:
    """Print the messages of a topic; without a place to start, those that arrive from now on.

    Nothing is committed and no group is joined: reading disturbs nobody and can be repeated. Order holds within
    a partition.
    """
    from penstock.client.admin import Admin
    from penstock.client.console_reader import ConsoleReader, Place, ranges

    if sum((from_beginning, offset is not None, since is not None)) > 1:
        raise WrongUseError("give one of --from-beginning, --offset and --since")
    since_ms = None if since is None else parse_time(since, time.time_ns() // 1_000_000)
    place = Place(from_beginning, offset, since_ms)
    wanted = ranges(Admin(session.bootstrap, debug=session.debug), topic, partition, place)
    reader = ConsoleReader(session.bootstrap, topic, wanted, follow=follow, debug=session.debug)
    try:
        _copy(reader, as_json=session.json or format_ is Format.JSON, most=max_)
    except KeyboardInterrupt:
        pass  # the ordinary way to stop following
    finally:
        reader.close()


def _copy(reader: "ConsoleReader", *, as_json: bool, most: int | None) -> None:
    out = sys.stdout.buffer
    render = _json_line if as_json else _text_line
    pipe = _Pipe()
    left = most if most is not None else sys.maxsize
    lost = False
    while left and not reader.done and not pipe.closed():
        lines = []
        for message in reader.read(_WAIT_SECONDS):
            lines.append(render(message))
            left -= 1
            if not left:
                break
        out.write(b"".join(lines))
        out.flush()
        if reader.broker_lost and not lost:
            print("penstock: the broker is gone; waiting for it to come back (Ctrl-C ends)", file=sys.stderr)
        lost = reader.broker_lost


class _Pipe:
    """Whether the reader of our output has gone, also while there is nothing to write to it."""

    def __init__(self) -> None:
        number = sys.stdout.fileno()
        self._poll: select.poll | None = None
        if stat.S_ISFIFO(os.fstat(number).st_mode):
            self._poll = select.poll()
            self._poll.register(number, 0)

    def closed(self) -> bool:
        return self._poll is not None and bool(self._poll.poll(0))


def _text_line(message: "Message") -> bytes:
    return (message.value() or b"") + b"\n"


def _json_line(message: "Message") -> bytes:
    kind, timestamp_ms = message.timestamp()
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    line: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": timestamp_ms if kind else None,
        **_as_text("key", message.key()),
        **_as_text("value", message.value()),
        "headers": [{"name": name, **_as_text("value", value)} for name, value in headers],
    }
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _as_text(name: str, data: str | bytes | None) -> dict[str, str | None]:
    """Text where the bytes are text; base64 under another name where they are not, so that nothing is lost."""
    if data is None:
        return {name: None}
    raw = data.encode() if isinstance(data, str) else data
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(raw).decode()}
