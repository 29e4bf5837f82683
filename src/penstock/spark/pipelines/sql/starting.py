"""From the text of a query to a running one: its topics, their columns, the checkpoint, the sink."""

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from penstock.client.raw import RawClient, TopicInfo
from penstock.spark.pipelines.sql.explain import explained
from penstock.spark.pipelines.sql.memory import Checkpoint, Memory, checkpoint_location, forget
from penstock.spark.pipelines.sql.running import RunningSql, check_broker
from penstock.spark.pipelines.sql.sample import infer, newest_values
from penstock.spark.pipelines.sql.settings import SqlError, SqlSettings, TargetKind, Value
from penstock.spark.pipelines.sql.tables import check_target, check_topics, table_names
from penstock.spark.pipelines.sql.targets import Screen, default_mode, start_query
from penstock.spark.pipelines.sql.views import parse_schema, schema_text, stream_of, view_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def start_sql(
    spark: "SparkSession",
    asked: SqlSettings,
    *,
    bootstrap: str,
    screen: Screen | None = None,
    stop: threading.Event | None = None,
) -> RunningSql:
    """The query, started. `wait` for it, and `close` it."""
    topics = _topics(spark, asked, bootstrap)
    place = checkpoint_location(asked, bootstrap, spark.sparkContext.master or "")
    try:
        checkpoint = Checkpoint(spark, place.uri)
        memory = checkpoint.recall(asked)
        if memory is None and asked.target.kind is TargetKind.LAKE:
            checkpoint.check_lake(asked.target.name)
        schemas, inferred = _schemas(spark, asked, bootstrap, topics, memory.schemas if memory else {})
        frame = _result(spark, asked, bootstrap, schemas)
        mode = default_mode(frame, asked)
        if memory is None:
            texts = {topic: schema.json() for topic, schema in schemas.items() if schema is not None}
            checkpoint.remember(Memory(asked.identity(), texts))
        query = start_query(frame, asked, mode, place.uri, bootstrap, screen or Screen())
    except BaseException:
        forget(place)
        raise
    return RunningSql(query, asked, place, bootstrap, list(topics), inferred, stop)


def _topics(spark: "SparkSession", asked: SqlSettings, bootstrap: str) -> dict[str, TopicInfo]:
    """The topics of the query; tables and views that the session has under a name stay what they are."""
    names = [name for name in table_names(spark, asked.query) if not _has_table(spark, name)]
    there = check_broker(bootstrap)
    check_topics(names, there)
    if not names:
        raise SqlError("the query reads no topic: name one after FROM")
    for option, given in (
        ("--schema", asked.schema),
        ("--value", asked.value),
        ("--watermark", asked.watermark),
    ):
        given.check_topics(option, names)
    if asked.target.kind is TargetKind.TOPIC:
        check_target(asked.target.name, names, there)
    return {name: there[name] for name in names}


def _has_table(spark: "SparkSession", name: str) -> bool:
    return spark.catalog.tableExists(f"`{name.replace('`', '``')}`")


def _schemas(
    spark: "SparkSession",
    asked: SqlSettings,
    bootstrap: str,
    topics: Mapping[str, TopicInfo],
    remembered: Mapping[str, str],
) -> tuple[dict[str, StructType | None], dict[str, str]]:
    """The fields of each topic (None: text), and those that were inferred just now, as text."""
    schemas: dict[str, StructType | None] = {}
    inferred: dict[str, str] = {}
    for topic, info in topics.items():
        given = asked.schema.get(topic)
        if asked.value_of(topic) is Value.TEXT:
            schemas[topic] = None
        elif given is not None:
            schemas[topic] = parse_schema(given, topic)
        elif topic in remembered:
            schemas[topic] = StructType.fromJson(json.loads(remembered[topic]))
        else:
            with RawClient(bootstrap) as client:
                values = newest_values(client, topic, info.partitions)
            found = schemas[topic] = infer(spark, topic, values)
            inferred[topic] = schema_text(found)
    return schemas, inferred


def _result(
    spark: "SparkSession", asked: SqlSettings, bootstrap: str, schemas: Mapping[str, StructType | None]
) -> "DataFrame":
    """The query over views of its topics. The views go again: what has been analysed needs them no more."""
    made: list[str] = []
    columns: dict[str, list[str]] = {}
    try:
        for topic, schema in schemas.items():
            view = view_of(stream_of(spark, bootstrap, topic, asked), topic, schema, asked)
            view.createTempView(f"`{topic}`")
            made.append(topic)
            columns[topic] = view.columns
        _check_watermark(asked, columns)
        return spark.sql(asked.query)
    except PySparkException as error:
        raise explained(error, asked.query) from None
    finally:
        for topic in made:
            spark.catalog.dropTempView(topic)


def _check_watermark(asked: SqlSettings, columns: Mapping[str, list[str]]) -> None:
    """A watermark for every topic is for those with its column: there must be one."""
    if asked.watermark.everywhere is None:
        return
    for topic, names in columns.items():
        watermark = asked.watermark_of(topic)
        if watermark is not None and watermark.column.lower() in (name.lower() for name in names):
            return
    known = "; ".join(f"{topic} has {', '.join(names)}" for topic, names in columns.items())
    raise SqlError(f"--watermark {asked.watermark.everywhere!r}: no topic has that column ({known})")
