"""`penstock produce`: lines from stdin become messages."""

import re
import sys
import time
from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.command import Session, command, hush_stdout, say, say_error
from penstock.cli.errors import FAILED, INTERRUPTED, WrongUseError
from penstock.cli.options import parse_pairs
from penstock.cli.output import print_json
from penstock.core.text import count_text, size_text

_EXAMPLES = (
    "echo hello | penstock produce greetings",
    "penstock produce orders --key-sep : --tag checkout < orders.txt",
    "penstock produce logs --acks 1 --compression zstd --header host=web-1 < access.log",
)
_FAILURES_SHOWN = 5
_PROGRESS_SECONDS = 0.2


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


Acks = Annotated[
    str,
    typer.Option(
        metavar="0|1|all|K", help="Who must have a message: nobody, the leader, all, or K replicas."
    ),
]


def register(app: typer.Typer) -> None:
    command(app, "produce", examples=_EXAMPLES)(produce)


def produce(
    session: Session,
    topic: Annotated[str, typer.Argument(help="Where to send.", metavar="TOPIC")],
    key_sep: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Splits each line into key and value, at its first place."),
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="A tag for every message; may be repeated.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A header for every message; may be repeated."),
    ] = None,
    acks: Acks = "all",
    compression: Annotated[Compression, typer.Option(help="How batches are compressed.")] = Compression.NONE,
) -> None:
    """Send each line of stdin as a message.

    Tags travel in the header `tags`, separated by commas. The exit code is 1 when any message failed.
    """
    from penstock.client.console.producer import ConsoleProducer

    headers = _headers(tag, header)
    check_acks(acks)
    separator = _separator(key_sep)
    report = _Report(topic)
    producer = ConsoleProducer(
        session.bootstrap,
        topic,
        acks=acks,
        compression=compression,
        on_failure=lambda error: report.failure(str(error)),
        debug=session.debug,
    )
    if sys.stdin.isatty():
        say(f"each line is a message to {topic}; Ctrl-D ends")
    interrupted = False
    try:
        for number, line in enumerate(sys.stdin.buffer, 1):
            value = line.removesuffix(b"\n")
            key = None
            if separator is not None:
                key, found, value = value.partition(separator)
                if not found:
                    report.without_key(number, key_sep)
                    continue
            producer.send(value, key, headers)
            report.sent(len(value))
        producer.finish()
    except KeyboardInterrupt:
        interrupted = True
        producer.finish()
    try:
        report.end(session, producer.acknowledged, producer.failed, acks)
        sys.stdout.flush()
    except BrokenPipeError:
        hush_stdout()  # nobody reads the summary; what failed has failed all the same
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if producer.failed or report.skipped:
        raise typer.Exit(FAILED)


class _Report:
    """What the user hears: progress on a terminal, the first failures, a summary."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._started = time.monotonic()
        self._shown_at = self._started
        self._progress = sys.stderr.isatty() and not sys.stdin.isatty()
        self._messages = 0
        self._bytes = 0
        self._failures: dict[str, None] = {}
        self.skipped = 0

    def sent(self, size: int) -> None:
        self._messages += 1
        self._bytes += size
        if self._progress and self._messages % 1000 == 0:
            now = time.monotonic()
            if now - self._shown_at >= _PROGRESS_SECONDS:
                self._shown_at = now
                rate = self._messages / (now - self._started)
                text = f"{self._messages:,} messages, {size_text(self._bytes)}, {rate:,.0f} a second"
                say(f"\r\x1b[K{text}", end="")

    def failure(self, text: str) -> None:
        """The same reason is said once, however many messages it takes."""
        if text not in self._failures and len(self._failures) < _FAILURES_SHOWN:
            self._failures[text] = None
            say_error(text)

    def without_key(self, number: int, separator: str | None) -> None:
        self.skipped += 1
        if self.skipped <= _FAILURES_SHOWN:
            say_error(
                f"line {number} has no {separator!r} and was not sent: add a key, or leave --key-sep out"
            )

    def end(self, session: Session, acknowledged: int, failed: int, acks: str) -> None:
        if self._progress:
            say("\r\x1b[K", end="")
        failed += self.skipped
        seconds = time.monotonic() - self._started
        if session.json:
            print_json(
                {
                    "topic": self._topic,
                    "sent": self._messages,
                    "acknowledged": acknowledged,
                    "failed": failed,
                    "bytes": self._bytes,
                    "seconds": round(seconds, 3),
                }
            )
            return
        word = "handed over" if acks == "0" else "acknowledged"
        ending = f", {failed:,} failed" if failed else ""
        print(
            f"{count_text(acknowledged, 'message')} {word} ({size_text(self._bytes)} sent to {self._topic} "
            f"in {seconds:.1f} s){ending}"
        )


def _headers(tags: list[str] | None, pairs: list[str] | None) -> list[tuple[str, bytes]]:
    headers = [(name, value.encode()) for name, value in parse_pairs("--header", pairs).items()]
    for tag in tags or []:
        if not tag or "," in tag:
            raise WrongUseError(f"--tag {tag!r} is not one tag: give --tag once for each")
    if tags:
        headers.append(("tags", ",".join(tags).encode()))
    return headers


def _separator(text: str | None) -> bytes | None:
    if text == "":
        raise WrongUseError("--key-sep is empty: give the text between key and value, such as --key-sep :")
    # A shell user writes \t and means a tab.
    return None if text is None else text.replace("\\t", "\t").encode()


def check_acks(acks: str) -> None:
    if acks != "all" and not re.fullmatch(r"[0-9]{1,3}", acks):
        raise WrongUseError(f"--acks {acks!r} is unknown: give 0, 1, all, or a number of replicas")
