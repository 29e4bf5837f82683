"""`penstock pipeline archive`: topics into a Parquet lake, exactly once."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import Session, command
from penstock.cli.errors import INTERRUPTED, WrongUseError
from penstock.cli.options import parse_duration, parse_pairs, parse_size
from penstock.cli.output import print_json, print_table
from penstock.cli.pipeline.spark_user import SparkUser
from penstock.core.text import count_text, size_text

if TYPE_CHECKING:
    from penstock.spark.pipelines.archive.rounds import RoundDone
    from penstock.spark.pipelines.archive.summary import Summary

_SPARK = "Spark"
_TUNING = "Tuning"


def register(app: typer.Typer) -> None:
    command(
        app,
        "archive",
        examples=(
            "penstock pipeline archive --topic orders --to /data/lake",
            "penstock pipeline archive --pattern 'orders-.*' --to hdfs://namenode/lake --every 1m",
            "penstock pipeline archive --topic orders --to /mnt/lake --master spark://host:7077",
        ),
    )(archive)


To = Annotated[
    str,
    typer.Option("--to", metavar="URI", help="The lake: a folder, hdfs://HOST/PATH or s3a://BUCKET/PATH."),
]
Topic = Annotated[
    list[str] | None, typer.Option("--topic", metavar="NAME", help="A topic to archive; may be repeated.")
]
Pattern = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Every topic whose whole name matches, also those made later."),
]
Every = Annotated[
    str | None, typer.Option(metavar="TIME", help="Go on until Ctrl-C, with a look every 30s, 1m, 1h…")
]
Once = Annotated[bool, typer.Option("--once", help="Archive what is there now, then end (the default).")]
FailOnDataLoss = Annotated[
    bool,
    typer.Option(
        "--fail-on-data-loss/--no-fail-on-data-loss",
        help="End when records are gone that were not archived yet, or note them as lost and go on.",
    ),
]
TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Let retention wait for this lake, not for the one it has waited for."),
]
Master = Annotated[str, typer.Option(metavar="URL", help="Where Spark runs.", rich_help_panel=_SPARK)]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated.", rich_help_panel=_SPARK
    ),
]
KafkaSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--kafka",
        metavar="NAME=VALUE",
        help="A setting of the Kafka client; may be repeated.",
        rich_help_panel=_SPARK,
    ),
]
Codec = Annotated[
    str, typer.Option(metavar="CODEC", help="zstd, snappy, lz4, gzip or none.", rich_help_panel=_TUNING)
]
Compact = Annotated[
    bool, typer.Option("--compact/--no-compact", help="Merge small files.", rich_help_panel=_TUNING)
]
CompactFiles = Annotated[
    int, typer.Option(min=1, help="So many small files may an hour have.", rich_help_panel=_TUNING)
]
RoundSize = Annotated[
    str, typer.Option(metavar="SIZE", help="The most that one round takes.", rich_help_panel=_TUNING)
]
RoundRows = Annotated[
    int, typer.Option(min=1, help="The most rows that one round takes.", rich_help_panel=_TUNING)
]


def archive(
    session: Session,
    to: To,
    topic: Topic = None,
    pattern: Pattern = None,
    every: Every = None,
    once: Once = False,
    fail_on_data_loss: FailOnDataLoss = True,
    take_over: TakeOver = False,
    master: Master = "local[*]",
    conf: Conf = None,
    kafka: KafkaSettings = None,
    compression: Codec = "zstd",
    compact: Compact = True,
    compact_files: CompactFiles = 16,
    round_size: RoundSize = "1GB",
    round_rows: RoundRows = 20_000_000,
) -> None:
    """Topics into a Parquet lake, exactly once; run it again to go on where it ended.

    Files lie in topic=NAME/date=YYYY-MM-DD/hour=HH, in UTC. On topics with penstock.archive.required=true the broker
    keeps what is not archived yet, whatever its retention says.
    """
    if once and every is not None:
        raise WrongUseError("--once and --every contradict each other: give one of them")
    if not topic and pattern is None:
        raise WrongUseError("nothing to archive: give --topic NAME or --pattern REGEX")
    every_s = None if every is None else parse_duration("--every", every)
    from penstock.spark.pipelines import archive as run

    with SparkUser(debug=session.debug) as user:
        screen = _Screen(user, json=session.json)
        summary = run(
            topic or (),
            to=to,
            bootstrap=session.bootstrap,
            pattern=pattern,
            every_s=every_s,
            master=master,
            spark_config=parse_pairs("--conf", conf),
            kafka=parse_pairs("--kafka", kafka),
            fail_on_data_loss=fail_on_data_loss,
            take_over=take_over,
            compression=compression,
            compact_files=compact_files if compact else None,
            round_bytes=parse_size("--round-size", round_size),
            round_rows=round_rows,
            listener=screen,
            stop=user.stop,
        )
    if session.json:
        print_json(summary.as_json())
    else:
        _print_summary(summary)
    if every is None and user.stop.is_set():
        raise typer.Exit(INTERRUPTED)


class _Screen:
    """A line per round: a terminal and a log file want the same."""

    def __init__(self, user: SparkUser, *, json: bool) -> None:
        self._user = user
        self._json = json

    def started(self) -> None:
        self._user.started()

    def warn(self, line: str) -> None:
        print(f"penstock: warning: {line}", file=sys.stderr, flush=True)

    def round_done(self, done: "RoundDone", summary: "Summary") -> None:
        left = f", {done.plan.left:,} offsets to go" if done.plan.left else ""
        rate = done.payload_bytes / 1e6 / max(done.seconds, 0.001)
        self._say(
            f"round {summary.rounds}: {count_text(done.rows, 'row')}, {size_text(done.payload_bytes)} in "
            f"{done.seconds:.1f} s ({rate:.1f} MB/s), {count_text(len(done.entry.added), 'file')}{left}"
        )

    def compacted(self, files: int) -> None:
        self._say(f"merged {count_text(files, 'small file')}")

    def _say(self, line: str) -> None:
        if not self._json:
            print(line, flush=True)


def _print_summary(summary: "Summary") -> None:
    if summary.topics:
        print_table(
            ("topic", "rows", "MB", "files", "archived to", "rows in all", "lost"),
            [
                (
                    topic.topic,
                    topic.rows,
                    topic.size_bytes / 1e6,
                    topic.files,
                    " ".join(f"{at}:{offset}" for at, offset in topic.next_offsets.items()) or "-",
                    topic.rows_total,
                    topic.lost_total,
                )
                for topic in sorted(
                    summary.topics.values(), key=lambda summary: (summary.topic, summary.topic_id)
                )
            ],
        )
    if not summary.rows:
        print(f"nothing new for {summary.uri}")
        return
    print(
        f"archived {count_text(summary.rows, 'row')} ({size_text(summary.payload_bytes)}, in Parquet "
        f"{size_text(summary.size_bytes)}) in {summary.seconds:.1f} s, {summary.mb_per_s:.1f} MB/s, "
        f"{count_text(summary.files, 'file')}, to {summary.uri}"
    )
