"""`penstock bench`: what a running broker does on this machine, in half a minute."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import Session, command
from penstock.cli.output import print_json, print_table
from penstock.cli.produce import Acks, check_acks
from penstock.core.text import size_text

if TYPE_CHECKING:
    from penstock.client.quick_bench import Rate

_EXAMPLES = (
    "penstock bench",
    "penstock bench --messages 1000000 --size 100 --acks 1",
    "penstock bench --bootstrap broker.example:9092 --json",
)
_PROGRESS_SECONDS = 0.2


def register(app: typer.Typer) -> None:
    command(app, "bench", examples=_EXAMPLES)(bench)


def bench(
    session: Session,
    messages: Annotated[int, typer.Option(min=1, metavar="N", help="How many messages.")] = 200_000,
    size: Annotated[int, typer.Option(min=1, metavar="BYTES", help="How large each one is.")] = 1000,
    acks: Acks = "all",
    topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC", help="Use this topic and keep it (default: a new one, deleted afterwards)."
        ),
    ] = None,
) -> None:
    """Measure a running broker: messages in, messages out, and how long one takes to cross.

    One Python client on librdkafka does all the work, so this is what such a client gets. The comparison with
    Apache Kafka, with C clients and many runs, is `make bench`.
    """
    from penstock.client.admin.admin import Admin
    from penstock.client.quick_bench import QuickBench

    check_acks(acks)
    admin = Admin(session.bootstrap, debug=session.debug)
    name = topic or f"penstock-bench-{time.time_ns() // 1_000_000}"
    if topic is None:
        admin.create(name, partitions=1)
    progress = _Progress(sys.stderr.isatty())
    try:
        run = QuickBench(
            session.bootstrap, name, size=size, acks=acks, progress=progress, debug=session.debug
        )
        produced = run.produce(messages)
        consumed = run.consume(messages)
        seconds = run.latency()
    finally:
        progress.end()
        if topic is None:
            admin.delete(name)
    _print(session, produced, consumed, seconds, acks)


def _print(session: Session, produced: "Rate", consumed: "Rate", seconds: list[float], acks: str) -> None:
    latency_ms = {f"p{share}": _percentile(seconds, share) * 1000 for share in (50, 95, 99)}
    if session.json:
        print_json(
            {
                "acks": acks,
                **{
                    stage: {
                        "messages": rate.messages,
                        "seconds": round(rate.seconds, 3),
                        "messages_per_second": round(rate.messages_per_second),
                        "bytes_per_second": round(rate.bytes_per_second),
                    }
                    for stage, rate in (("produce", produced), ("consume", consumed))
                },
                "latency_ms": {name: round(value, 3) for name, value in latency_ms.items()},
            }
        )
        return
    rows = [
        (
            stage,
            f"{rate.messages_per_second:,.0f}",
            f"{size_text(rate.bytes_per_second)}/s",
            f"{rate.seconds:.2f} s",
        )
        for stage, rate in ((f"produce, acks={acks}", produced), ("consume", consumed))
    ]
    print_table(("", "messages/s", "data", "took"), rows)
    shares = ", ".join(f"{name} {value:.2f} ms" for name, value in latency_ms.items())
    print(f"one message from producer to consumer: {shares}")
    if consumed.messages < produced.messages:
        print(
            f"{produced.messages - consumed.messages:,} of {produced.messages:,} messages did not arrive: with acks=0 "
            "nobody is told"
        )


def _percentile(ordered: list[float], share: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)]


class _Progress:
    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._at = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self._shown and now - self._at >= _PROGRESS_SECONDS:
            self._at = now
            print(f"\r\x1b[K{stage}: {done:,} of {total:,}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
