"""Where the rows go: a topic as JSON, a lake as Parquet files, or the screen."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark program has for it
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

from penstock.spark.pipelines.sql.explain import explained
from penstock.spark.pipelines.sql.settings import Mode, SqlError, SqlSettings, TargetKind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro batch for the screen; at most `rows_max` rows of it."""

    number: int
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    total: int


# Called with each micro batch. `lines` instead: every row of a batch as a line of JSON.
Show = Callable[[Batch], None]
ShowLine = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Screen:
    show: Show | None = None
    show_line: ShowLine | None = None
    rows_max: int = 100


def default_mode(frame: "DataFrame", settings: SqlSettings) -> Mode:
    """Append; on the screen, groups are shown whenever they change, and all of them when they are sorted."""
    if settings.mode is not None:
        return settings.mode
    if settings.target.kind is not TargetKind.CONSOLE:
        return Mode.APPEND
    kinds = _plan_kinds(frame._jdf.queryExecution().analyzed())  # noqa: SLF001
    if "Aggregate" not in kinds:
        return Mode.APPEND
    return Mode.COMPLETE if "Sort" in kinds else Mode.UPDATE


def _plan_kinds(plan: Any) -> set[str]:
    children = plan.children()
    kinds = {str(plan.nodeName())}
    for i in range(children.size()):
        kinds |= _plan_kinds(children.apply(i))
    return kinds


def start_query(
    frame: "DataFrame", settings: SqlSettings, mode: Mode, checkpoint: str, bootstrap: str, screen: Screen
) -> "StreamingQuery":
    kind = settings.target.kind
    if kind is TargetKind.TOPIC and mode is Mode.APPEND:
        writer = as_records(frame).writeStream.format("penstock")
        writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", settings.target.name)
    elif kind is TargetKind.TOPIC:
        # Spark lets no Python sink have changed rows; batch by batch they are as good as new ones to a topic.
        writer = as_records(frame).writeStream.foreachBatch(_written_to(settings.target.name, bootstrap))
    elif kind is TargetKind.LAKE:
        _check_names(frame)
        writer = frame.writeStream.format("parquet").option("path", settings.target.name)
    else:
        writer = frame.writeStream.foreachBatch(_shown_by(screen))
    return _started(writer, settings, mode, checkpoint)


def _written_to(topic: str, bootstrap: str) -> Callable[["DataFrame", int], None]:
    def write(batch: "DataFrame", _: int) -> None:
        writer = batch.write.format("penstock").mode("append").option("topic", topic)
        writer.option("kafka.bootstrap.servers", bootstrap).save()

    return write


def _started(
    writer: "DataStreamWriter", settings: SqlSettings, mode: Mode, checkpoint: str
) -> "StreamingQuery":
    writer = writer.outputMode(str(mode)).option("checkpointLocation", checkpoint)
    if settings.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{settings.every_ms} milliseconds")
    try:
        return writer.start()
    except PySparkException as error:
        raise explained(error, settings.query, mode=mode) from None


def as_records(frame: "DataFrame") -> "DataFrame":
    """The column `key` as the key, all others as one JSON object."""
    _check_names(frame)
    key = next((field for field in frame.schema.fields if field.name.lower() == "key"), None)
    rest = [F.col(_quoted(name)) for name in frame.columns if key is None or name != key.name]
    if not rest:
        raise SqlError(
            "a record needs a value, and the query only has the column key: select something else too"
        )
    value = F.to_json(F.struct(*rest), {"ignoreNullFields": "false"}).alias("value")
    if key is None:
        return frame.select(value)
    return frame.select(_key(key.name, key.dataType), value)


def _key(name: str, kind: object) -> "Column":
    column = F.col(_quoted(name))
    if isinstance(kind, StructType | ArrayType | MapType):
        column = F.to_json(column)
    elif not isinstance(kind, StringType | BinaryType):
        column = column.cast("string")
    return column.alias("key")


def _check_names(frame: "DataFrame") -> None:
    """Two columns of one name cannot be told apart in a record or a file."""
    counts = Counter(name.lower() for name in frame.columns)
    for name in frame.columns:
        if counts[name.lower()] > 1:
            raise SqlError(
                f"the query gives {counts[name.lower()]} columns the name {name}: rename them with AS"
            )


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _shown_by(screen: Screen) -> Callable[["DataFrame", int], None]:
    def show(batch: "DataFrame", number: int) -> None:
        # All partitions are computed before any row is taken: a partition of a stateful query that is not has
        # no state for the next batch.
        batch.persist()
        try:
            total = batch.count()
            if total == 0:
                return
            if screen.show_line is not None:
                columns = [F.col(f"`c{i}`").alias(name) for i, name in enumerate(batch.columns)]
                # Columns may have equal names; by number they are told apart, and JSON keeps both.
                numbered = batch.toDF(*(f"c{i}" for i in range(len(batch.columns))))
                line = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
                for row in numbered.select(line).toLocalIterator():
                    screen.show_line(row[0])
            if screen.show is not None:
                rows: list[tuple[Any, ...]] = list(batch.take(screen.rows_max))
                screen.show(Batch(number, tuple(batch.columns), rows, total))
        finally:
            batch.unpersist()

    return show
