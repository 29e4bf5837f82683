"""`penstock pipeline sql`: streaming SQL over topics."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import Session, command
from penstock.cli.errors import WrongUseError
from penstock.cli.options import parse_duration, parse_pairs
from penstock.cli.output import Cell, print_json, print_table
from penstock.cli.pipeline.spark_user import SparkUser
from penstock.core.text import count_text

if TYPE_CHECKING:
    from penstock.spark.pipelines.sql import SqlSettings, Summary
    from penstock.spark.pipelines.sql.targets import Batch

_SPARK = "Spark"
_DONE_TO_MALFORMED = {"skip": "skipped", "keep": "kept in _corrupt", "fail": "refused"}


def register(app: typer.Typer) -> None:
    command(
        app,
        "sql",
        examples=(
            'penstock pipeline sql "SELECT city, count(*) FROM orders GROUP BY city" --once',
            'penstock pipeline sql "SELECT * FROM `web.logs`" --value text --from latest --json',
            """penstock pipeline sql "SELECT window.start, count(*) FROM orders GROUP BY window(at, '1 minute')" \\""",
            "    --schema 'id INT, amount DOUBLE, at TIMESTAMP' --watermark 'at 5 minutes' --to topic:counts",
        ),
    )(sql)


To = Annotated[
    str,
    typer.Option("--to", metavar="TARGET", help="topic:NAME, a folder or URI for Parquet files, or console."),
]
Value = Annotated[
    list[str] | None,
    typer.Option("--value", metavar="[TOPIC=]json|text", help="What the values are; json by default."),
]
Schema = Annotated[
    list[str] | None,
    typer.Option(
        "--schema",
        metavar="[TOPIC=]COLUMNS",
        help="'id INT, at TIMESTAMP'; else inferred from the newest records.",
    ),
]
Watermark = Annotated[
    list[str] | None,
    typer.Option(
        "--watermark",
        metavar="[TOPIC=]'COLUMN DELAY'",
        help="How late records may be, as in 'at 10 minutes'.",
    ),
]
From = Annotated[
    str, typer.Option("--from", metavar="earliest|latest", help="Where a query without a checkpoint starts.")
]
Once = Annotated[bool, typer.Option("--once", help="Take what is there now, then end. Else: until Ctrl-C.")]
Every = Annotated[
    str | None, typer.Option(metavar="TIME", help="How often to look for records (default: 1s).")
]
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        metavar="URI",
        help="Where the query remembers how far it is (default: one per query and target; none for console).",
    ),
]
ModeOption = Annotated[
    str | None,
    typer.Option(
        metavar="append|update|complete", help="Final rows, changed groups, or all groups each time."
    ),
]
MalformedOption = Annotated[
    str,
    typer.Option(
        metavar="skip|keep|fail",
        help="Values that are not JSON: count them, keep them in column _corrupt, or end.",
    ),
]
Rows = Annotated[int, typer.Option("--rows", min=1, help="The most rows that the screen shows of a batch.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="An option of the data source, such as maxOffsetsPerTrigger.",
        rich_help_panel=_SPARK,
    ),
]
Master = Annotated[str, typer.Option(metavar="URL", help="Where Spark runs.", rich_help_panel=_SPARK)]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated.", rich_help_panel=_SPARK
    ),
]


def sql(
    session: Session,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A SELECT; its tables are topics.")],
    to: To = "console",
    value: Value = None,
    schema: Schema = None,
    watermark: Watermark = None,
    from_: From = "earliest",
    once: Once = False,
    every: Every = None,
    checkpoint: CheckpointOption = None,
    mode: ModeOption = None,
    malformed: MalformedOption = "skip",
    rows: Rows = 100,
    option: Options = None,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """A query over topics that goes on as records arrive: to a topic, a lake of Parquet files, or the screen.

    Tables are topics (names with dots or dashes in backticks). Their columns are key, those of the JSON value (or
    value, with --value text), timestamp, partition, offset and headers. A topic gets rows as JSON, keyed by the
    column key if there is one, at least once; files get each row exactly once.
    """
    from penstock.spark.pipelines.sql.settings import EVERY_MS, SqlUseError, parse_settings

    if once and every is not None:
        raise WrongUseError("--once and --every contradict each other: give one of them")
    every_ms = EVERY_MS if every is None else round(parse_duration("--every", every) * 1000)
    options, config = parse_pairs("--option", option), parse_pairs("--conf", conf)
    try:
        asked = parse_settings(
            query,
            to=to,
            value=value,
            schema=schema,
            watermark=watermark,
            start=from_,
            once=once,
            every_ms=every_ms,
            checkpoint=checkpoint,
            mode=mode,
            malformed=malformed,
            options=options,
        )
        _run(session, asked, master, config, rows)
    except SqlUseError as error:
        raise WrongUseError(str(error)) from None


def _run(session: Session, asked: "SqlSettings", master: str, config: dict[str, str], rows: int) -> None:
    from penstock.spark.checks import require_pyspark

    require_pyspark()
    from penstock.spark.pipelines.sql.early import check_early
    from penstock.spark.pipelines.sql.running import check_broker, sql_session

    there = check_broker(session.bootstrap)
    if not any("catalog" in name or "metastore" in name for name in config):  # where tables may come from
        check_early(asked, there)  # before Spark starts, which takes seconds
    with SparkUser(debug=session.debug, after="cancelling the batch at hand") as user:
        spark = sql_session(master, config)
        user.started()
        from penstock.spark.pipelines.sql.starting import start_sql
        from penstock.spark.pipelines.sql.targets import Screen

        printer = _Printer(user)
        screen = Screen(show_line=printer.line) if session.json else Screen(printer.batch, rows_max=rows)
        started = start_sql(spark, asked, bootstrap=session.bootstrap, screen=screen, stop=user.stop)
        told = _Told(asked, json=session.json)
        told.begin(started.summary)
        try:
            summary = started.wait(told.progress)
        finally:
            started.close()
    if printer.broken:
        raise BrokenPipeError
    told.end(summary)


class _Printer:
    """Rows on stdout, from the thread that Spark calls; whoever read them may have seen enough."""

    def __init__(self, user: SparkUser) -> None:
        self._user = user
        self.broken = False

    def line(self, text: str) -> None:
        self._guarded(lambda: print(text))

    def batch(self, batch: "Batch") -> None:
        more = f", the first {len(batch.rows):,} of them" if batch.total > len(batch.rows) else ""
        title = f"batch {batch.number}: {count_text(batch.total, 'row')}{more}"
        rows = [[_cell(cell) for cell in row] for row in batch.rows]
        self._guarded(lambda: print_table(batch.columns, rows, title=title))

    def _guarded(self, write: Any) -> None:
        """A batch that nobody saw fails: in a checkpoint it would count as shown."""
        try:
            write()
            sys.stdout.flush()
        except BrokenPipeError:
            self.broken = True
            self._user.stop.set()
            raise


def _cell(value: object) -> Cell:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    if isinstance(value, list):
        return "[" + ", ".join(str(_cell(item)) for item in value) + "]"
    as_dict = getattr(value, "asDict", None)
    if as_dict is not None:
        return "{" + ", ".join(f"{name}: {_cell(item)}" for name, item in as_dict().items()) + "}"
    return str(value)


class _Told:
    """What is said besides the rows: on stderr where the rows are on stdout."""

    def __init__(self, asked: "SqlSettings", *, json: bool) -> None:
        self._asked = asked
        self._json = json
        self._to_screen = str(asked.target) == "console"
        self._malformed = 0

    def begin(self, summary: "Summary") -> None:
        for topic, columns in summary.schemas.items():
            self._say(f"columns of {topic}, from its newest records: {columns}")

    def progress(self, summary: "Summary") -> None:
        malformed = sum(summary.malformed.values())
        if malformed > self._malformed:
            new, self._malformed = malformed - self._malformed, malformed
            self._say(
                f"{count_text(new, 'malformed record')} ({malformed:,} in all), {self._asked.malformed}"
            )
        if not self._to_screen and summary.batches:
            self._say(f"{count_text(summary.rows, 'row')} read, {summary.rows_per_s:,.0f} rows/s")

    def end(self, summary: "Summary") -> None:
        if self._json and not self._to_screen:
            print_json(
                {
                    "rows": summary.rows,
                    "batches": summary.batches,
                    "seconds": round(summary.seconds, 3),
                    "malformed": summary.malformed,
                    "target": str(self._asked.target),
                    "checkpoint": summary.checkpoint,
                }
            )
            return
        malformed = sum(summary.malformed.values())
        bad = f", {count_text(malformed, 'malformed record')}" if malformed else ""
        line = (
            f"read {count_text(summary.rows, 'row')} in {count_text(summary.batches, 'batch', 'batches')} and "
            f"{summary.seconds:.1f} s{bad}"
        )
        if self._to_screen:
            self._say(line)
        else:
            print(f"{line}; to {self._asked.target}, run it again to go on ({summary.checkpoint})")

    def _say(self, line: str) -> None:
        if not self._json:
            print(line, file=sys.stderr, flush=True)
