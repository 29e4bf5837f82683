"""`penstock consume`: messages to stdout, alone or as a member of a group."""

import base64
import json
import os
import select
import stat
import sys
import time
from contextlib import closing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from penstock.cli.command import Session, command
from penstock.cli.errors import WrongUseError
from penstock.cli.options import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.client.console.reader import ConsoleReader
    from penstock.client.console.row import ConsoleRow

_EXAMPLES = (
    "penstock consume greetings --from-beginning",
    "penstock consume orders --since 15m --no-follow --format json",
    "penstock consume orders --partition 0 --offset -10 --max 10",
    "penstock consume orders --group billing --from-beginning",
    "penstock consume orders --from-archive /data/lake",
)
# How long one wait for messages lasts: Ctrl-C and a closed pipe are noticed in between.
_WAIT_SECONDS = 0.2


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


class Isolation(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


def register(app: typer.Typer) -> None:
    command(app, "consume", examples=_EXAMPLES)(consume)


Topic = Annotated[str, typer.Argument(help="What to read.", metavar="TOPIC")]
Group = Annotated[
    str | None, typer.Option(metavar="GROUP", help="Join this group; what was printed is committed for it.")
]
FromBeginning = Annotated[bool, typer.Option("--from-beginning", help="Start at the oldest message.")]
Offset = Annotated[
    int | None, typer.Option(metavar="N", help="Start at this offset; -N starts N messages before the end.")
]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Start at a time: 5m, 2h or 1d ago, 2025-01-31T12:00, or epoch ms."),
]
FromArchive = Annotated[
    str | None,
    typer.Option(
        metavar="URI",
        help="Start with what `penstock pipeline archive` put there, then go on with the broker.",
    ),
]
SkipCorrupt = Annotated[
    bool, typer.Option("--skip-corrupt", help="With --from-archive: leave out files that are damaged.")
]
Partition = Annotated[
    list[int] | None, typer.Option(min=0, metavar="P", help="Only this partition; may be repeated.")
]
IsolationOption = Annotated[
    Isolation | None,
    typer.Option(
        "--isolation",
        help="read_committed shows nothing of transactions that are open or were aborted "
        "(default: read_uncommitted).",
        show_default=False,
    ),
]
Most = Annotated[int | None, typer.Option("--max", min=1, metavar="N", help="Stop after N messages.")]
As = Annotated[
    Format, typer.Option("--format", help="The value alone, or everything as a JSON object per line.")
]
Follow = Annotated[
    bool, typer.Option("--follow/--no-follow", help="Wait for new messages, or stop at the present end.")
]


def consume(
    session: Session,
    topic: Topic,
    group: Group = None,
    from_beginning: FromBeginning = False,
    offset: Offset = None,
    since: Since = None,
    from_archive: FromArchive = None,
    skip_corrupt: SkipCorrupt = False,
    partition: Partition = None,
    isolation: IsolationOption = None,
    max_: Most = None,
    format_: As = Format.TEXT,
    follow: Follow = True,
) -> None:
    """Print the messages of a topic; without a place to start, those that arrive from now on.

    Without --group nothing is committed: reading disturbs nobody and can be repeated. With it the group goes on
    where it left, and --from-beginning and --since count only where it has committed nothing; messages are committed
    after they were printed, so a crash may print some twice. Order holds within a partition. With --from-archive
    nothing is missing or there twice where the archive and the broker meet. Messages of transactions are shown as soon
    as they are stored; with --isolation read_committed when they are committed, and those behind an open transaction
    wait for its end (`penstock why TOPIC` names it).
    """
    if sum((from_beginning, offset is not None, since is not None, from_archive is not None)) > 1:
        raise WrongUseError("give one of --from-beginning, --offset, --since and --from-archive")
    if skip_corrupt and from_archive is None:
        raise WrongUseError("--skip-corrupt is about archived files: give it with --from-archive")
    if isolation is not None and from_archive is not None:
        raise WrongUseError("an archive has what is committed: leave out --isolation or --from-archive")
    level = isolation or Isolation.READ_UNCOMMITTED
    if group is not None:
        _check_group(group, offset, from_archive, partition)
    as_json = session.json or format_ is Format.JSON
    if from_archive is not None:
        from penstock.cli.consume_archive import archive_then_live

        with archive_then_live(
            session, from_archive, topic, partition, follow=follow, skip_corrupt=skip_corrupt
        ) as archived:
            _until_interrupted(archived, as_json=as_json, most=max_)
        return
    reader: Reader
    if group is None:
        reader = _live(session, topic, partition, from_beginning, offset, since, level, follow=follow)
    else:
        from penstock.cli.consume_group import GroupRows

        since_ms = None if since is None else parse_time(since, time.time_ns() // 1_000_000)
        reader = GroupRows(
            session,
            topic,
            group,
            from_beginning=from_beginning,
            since_ms=since_ms,
            isolation=level,
            most=max_,
            follow=follow,
        )
    _until_interrupted(reader, as_json=as_json, most=max_)


def _check_group(
    group: str, offset: int | None, from_archive: str | None, partition: list[int] | None
) -> None:
    if not group:
        raise WrongUseError("--group '' is no name: give the group one")
    if offset is not None:
        raise WrongUseError(
            f"a group goes on where it left: move it with `penstock group reset {group} --to-offset {offset}`"
        )
    if partition:
        raise WrongUseError("a group shares out the partitions by itself: leave out --partition or --group")
    if from_archive is not None:
        raise WrongUseError("an archive is read without a group: leave out --from-archive or --group")


def _live(
    session: Session,
    topic: str,
    partition: list[int] | None,
    from_beginning: bool,
    offset: int | None,
    since: str | None,
    isolation: Isolation,
    *,
    follow: bool,
) -> "_LiveRows":
    from penstock.client.admin.admin import Admin
    from penstock.client.console.reader import ConsoleReader, StartPosition, ranges
    from penstock.client.console.topic_watch import TopicWatch

    since_ms = None if since is None else parse_time(since, time.time_ns() // 1_000_000)
    admin = Admin(session.bootstrap, debug=session.debug)

    def opened(place: StartPosition, topic_id: str) -> "ConsoleReader":
        watch = TopicWatch(admin, topic, topic_id)
        wanted = ranges(admin, topic, partition, place, committed=isolation is Isolation.READ_COMMITTED)
        return ConsoleReader(
            session.bootstrap,
            topic,
            wanted,
            isolation=isolation,
            follow=follow,
            debug=session.debug,
            watch=watch,
        )

    def opened_again(topic_id: str) -> "ConsoleReader":
        admin.describe_new(topic)
        return opened(StartPosition(beginning=True), topic_id)

    reader = opened(StartPosition(from_beginning, offset, since_ms), admin.topic_id_by_most(topic))
    return _LiveRows(topic, reader, opened_again if follow else None)


class Reader(Protocol):
    """Whatever messages come from."""

    @property
    def done(self) -> bool: ...

    @property
    def broker_lost(self) -> bool: ...

    def read(self, timeout: float) -> "Iterator[ConsoleRow]": ...

    def close(self) -> None: ...


class _LiveRows:
    """The broker alone. `again` opens a reader of the topic that was made again, by its id; None: that is an error."""

    def __init__(
        self, topic: str, reader: "ConsoleReader", again: "Callable[[str], ConsoleReader] | None"
    ) -> None:
        from penstock.client.console.row import ConsoleRow

        self._topic = topic
        self._reader = reader
        self._again = again
        self._row = ConsoleRow.of

    @property
    def done(self) -> bool:
        return self._reader.done

    @property
    def broker_lost(self) -> bool:
        return self._reader.broker_lost

    def read(self, timeout: float) -> "Iterator[ConsoleRow]":
        from penstock.client.console.topic_watch import TopicRemadeError

        try:
            yield from map(self._row, self._reader.read(timeout))
        except TopicRemadeError as error:
            if self._again is None:
                raise
            print(
                f"penstock: {self._topic} was deleted and made again; what follows is the new one, from its first "
                "message",
                file=sys.stderr,
                flush=True,
            )
            self._reader.close()
            # Not as any broker tells it: one that hears late would tell the old one.
            self._reader = self._again(error.topic_id)

    def close(self) -> None:
        self._reader.close()


def _until_interrupted(reader: Reader, *, as_json: bool, most: int | None) -> None:
    try:
        # Closed while the interruption is on its way: what it kept from being printed is not committed.
        with closing(reader):
            _copy(reader, as_json=as_json, most=most)
    except KeyboardInterrupt:
        pass  # the ordinary way to stop following


def _copy(reader: Reader, *, as_json: bool, most: int | None) -> None:
    out = sys.stdout.buffer
    render = _json_line if as_json else _text_line
    pipe = _Pipe()
    left = most if most is not None else sys.maxsize
    lost = False
    while left and not reader.done:
        if pipe.closed():
            raise BrokenPipeError  # what it was given last may not have been read: that is not committed
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


def _text_line(row: "ConsoleRow") -> bytes:
    return (row.value or b"") + b"\n"


def _json_line(row: "ConsoleRow") -> bytes:
    line: dict[str, Any] = {
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "timestamp_ms": row.timestamp_ms,
        **as_text("key", row.key),
        **as_text("value", row.value),
        "headers": [{"name": name, **as_text("value", value)} for name, value in row.headers],
    }
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def as_text(name: str, data: bytes | None) -> dict[str, str | None]:
    """Text where the bytes are text; base64 under another name where they are not, so that nothing is lost."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
