"""`penstock pipeline replay`: the archive back into a topic."""

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import Session, command
from penstock.cli.errors import INTERRUPTED, WrongUseError
from penstock.cli.options import is_ago, parse_pairs, parse_time
from penstock.cli.output import print_json, print_table
from penstock.cli.pipeline.spark_user import SparkUser
from penstock.core.text import count_text, size_text

if TYPE_CHECKING:
    from penstock.spark.pipelines.replaying.summary import Replayed

_WHAT = "What is replayed"
_TARGET = "The target"
_SPARK = "Spark"


def register(app: typer.Typer) -> None:
    command(
        app,
        "replay",
        examples=(
            "penstock pipeline replay --from /data/lake --topic orders-again",
            "penstock pipeline replay --from hdfs://namenode/lake --source-topic orders --topic refunds --tags refund",
            "penstock pipeline replay --from /data/lake --topic monday --since 2025-01-06 --until 2025-01-07",
        ),
    )(replay)


From = Annotated[
    str,
    typer.Option(
        "--from", metavar="URI", help="The archive: a folder, hdfs://HOST/PATH or s3a://BUCKET/PATH."
    ),
]
Topic = Annotated[str, typer.Option(metavar="NAME", help="Replay into this topic; it is made when missing.")]
SourceTopic = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The archived topic, where there are several.", rich_help_panel=_WHAT),
]
SourceTopicId = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="Which one, of a topic that was deleted and made anew (default: the newest).",
        rich_help_panel=_WHAT,
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="From this time on: 5m, 2h or 1d ago, 2025-01-31T12:00, or epoch ms.",
        rich_help_panel=_WHAT,
    ),
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Up to, not including, this time.", rich_help_panel=_WHAT)
]
Partitions = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", min=0, metavar="P", help="Only this partition; may be repeated.", rich_help_panel=_WHAT
    ),
]
Key = Annotated[
    str | None, typer.Option(metavar="KEY", help="Only messages with this key.", rich_help_panel=_WHAT)
]
Tags = Annotated[
    str | None,
    typer.Option(
        metavar="A,B", help="Only messages with one of these in a `tags` header.", rich_help_panel=_WHAT
    ),
]
SkipCorrupt = Annotated[
    bool,
    typer.Option("--skip-corrupt", help="Leave out files that are damaged.", rich_help_panel=_WHAT),
]
Create = Annotated[
    bool,
    typer.Option("--create/--no-create", help="Make the topic when it is missing.", rich_help_panel=_TARGET),
]
PartitionCount = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        min=1,
        help="How many, of a topic that is made (default: as many as the original had).",
        rich_help_panel=_TARGET,
    ),
]
Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="NAME=VALUE",
        help="A setting of a topic that is made; may be repeated.",
        rich_help_panel=_TARGET,
    ),
]
Append = Annotated[
    bool,
    typer.Option(
        "--append",
        help="Write behind other messages in the topic, instead of refusing to.",
        rich_help_panel=_TARGET,
    ),
]
Codec = Annotated[
    str,
    typer.Option(
        "--compression",
        metavar="CODEC",
        help="none, gzip, snappy, lz4 or zstd.",
        rich_help_panel=_TARGET,
    ),
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


def replay(
    session: Session,
    from_: From,
    topic: Topic,
    source_topic: SourceTopic = None,
    source_topic_id: SourceTopicId = None,
    since: Since = None,
    until: Until = None,
    partition: Partitions = None,
    key: Key = None,
    tags: Tags = None,
    skip_corrupt: SkipCorrupt = False,
    create: Create = True,
    partitions: PartitionCount = None,
    config: Config = None,
    append: Append = False,
    compression: Codec = "lz4",
    master: Master = "local[*]",
    conf: Conf = None,
    kafka: KafkaSettings = None,
) -> None:
    """An archived topic back into a topic: every message in its partition, in its order.

    Key, value, timestamp and headers are as they were; the headers penstock.replay.offset, penstock.replay.timestamp
    and penstock.replay.from tell where a message was. Run it again after it was cut off, or when more was archived:
    it goes on where it ended, and nothing is there twice. A topic that holds other messages is refused, since order
    and a second run depend on the last message there; with --append the replay goes behind them, and a second run
    looks for its last message among the others.
    """
    if tags is not None and not any(tag.strip() for tag in tags.split(",")):
        raise WrongUseError("--tags names no tag: write --tags a,b")
    since_ms, until_ms, again = _times(since, until, append=append)
    from penstock.spark.pipelines import replay as run

    user = SparkUser(debug=session.debug, after="this step")
    with ExitStack() as stack:
        summary = run(
            from_,
            topic,
            bootstrap=session.bootstrap,
            source_topic=source_topic,
            source_topic_id=source_topic_id,
            since=since_ms,
            until=until_ms,
            partitions=partition,
            key=key,
            tags=(tags or "").split(","),
            create=create,
            partition_count=partitions,
            config=parse_pairs("--config", config),
            append=append,
            skip_corrupt=skip_corrupt,
            compression=compression,
            master=master,
            spark_config=parse_pairs("--conf", conf),
            kafka=parse_pairs("--kafka", kafka),
            listener=_Screen(user, stack, json=session.json),
            stop=user.stop,
        )
    if session.json:
        print_json(summary.as_json())
    else:
        _print_summary(summary, again)
    if not summary.finished:
        raise typer.Exit(INTERRUPTED)


def _times(since: str | None, until: str | None, *, append: bool) -> tuple[int | None, int | None, str]:
    """The times, and those that were given as ago, as they must be given to mean the same in another run."""
    now_ms = time.time_ns() // 1_000_000
    since_ms = None if since is None else parse_time(since, now_ms)
    until_ms = None if until is None else parse_time(until, now_ms, "--until")
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise WrongUseError("--since is not before --until: nothing would be replayed")
    given = (("--since", since, since_ms), ("--until", until, until_ms))
    again = " and ".join(f"{option} {at_ms}" for option, text, at_ms in given if is_ago(text))
    if again and append:
        raise WrongUseError(
            "a time ago is another one at each run, so that a second one would append everything once more: give "
            f"{again}, and the same when it is run again"
        )
    return since_ms, until_ms, again


class _Screen:
    def __init__(self, user: SparkUser, stack: ExitStack, *, json: bool) -> None:
        self._user = user
        self._stack = stack
        self._json = json

    def starting(self) -> None:
        self._stack.enter_context(self._user)

    def started(self) -> None:
        self._user.started()

    def warn(self, line: str) -> None:
        print(f"penstock: warning: {line}", file=sys.stderr, flush=True)

    def wave_done(self, so_far: "Replayed", rows_left: int) -> None:
        left = f", about {rows_left:,} to go" if rows_left else ""
        rate = f"{so_far.rows_per_s:,.0f} rows/s"
        if not self._json:
            print(f"replayed {count_text(so_far.rows, 'row')} ({rate}){left}", flush=True)


def _print_summary(summary: "Replayed", again: str) -> None:
    """`again`: what times ago were."""
    print_table(
        ("partition", "rows", "there before", "last original offset"),
        [
            (number, partition.rows, partition.skipped, None if partition.last < 0 else partition.last)
            for number, partition in sorted(summary.partitions.items())
        ],
    )
    made = " (made for it)" if summary.created else ""
    what = f"{count_text(summary.rows, 'row')} of {summary.source_topic}"
    if not summary.rows:
        print(f"nothing new for {summary.topic}{made} in {summary.uri}")
    else:
        print(
            f"replayed {what} to {summary.topic}{made}, {size_text(summary.size_bytes)} in {summary.seconds:.1f} s, "
            f"{summary.rows_per_s:,.0f} rows/s"
        )
    for where in summary.corrupt:
        print(f"left out, because it is damaged: {where}")
    if not summary.finished:
        with_times = f", with {again}" if again else ""
        print(f"stopped before the end: run the same command again to go on{with_times}")
