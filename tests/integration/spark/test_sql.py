"""Streaming SQL over real topics, in one Spark session; the command itself is in test_sql_command.py."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.integration.spark.topics import Sent, Topics

from penstock.spark.pipelines.sql import SqlError, Summary, sql
from penstock.spark.pipelines.sql.targets import Batch, Screen

SCHEMA = "id INT, city STRING, amount DOUBLE, at TIMESTAMP"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path / "state"))


class Query:
    """`sql(...)` with what every test here gives it, and what it showed."""

    def __init__(self, spark: SparkSession, topics: Topics) -> None:
        self.spark = spark
        self.topics = topics
        self.batches: list[Batch] = []
        self.lines: list[dict[str, Any]] = []

    def run(self, query: str, **options: Any) -> Summary:
        screen = Screen(self.batches.append, lambda line: self.lines.append(json.loads(line)))
        given = {"bootstrap": self.topics.bootstrap, "spark": self.spark, "once": True, "screen": screen}
        return sql(query, **(given | options))

    def refused(self, query: str, **options: Any) -> str:
        with pytest.raises(SqlError) as raised:
            self.run(query, **options)
        text = str(raised.value)
        assert "\n" not in text
        return text


@pytest.fixture
def query(spark: SparkSession, topics: Topics) -> Query:
    return Query(spark, topics)


def orders(topics: Topics, *rows: dict[str, Any] | str, partitions: int = 1, name: str = "orders") -> str:
    """A topic with these values, as JSON or as they are, keyed k0, k1, …"""
    # The times of these records are long ago.
    topic = topics.create(name, partitions, {"retention.ms": "-1"})
    send(topics, topic, *rows, partitions=partitions)
    return topic


def send(topics: Topics, topic: str, *rows: dict[str, Any] | str, partitions: int = 1) -> None:
    values = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    topics.produce(
        topic,
        [Sent(v.encode(), b"k%d" % n, n % partitions, headers=(("h", b"x"),)) for n, v in enumerate(values)],
    )


def order(number: int, city: str, amount: float, minute: int = 0) -> dict[str, Any]:
    return {"id": number, "city": city, "amount": amount, "at": f"2025-01-31T12:{minute:02}:00Z"}


def test_columns_by_schema_with_those_of_the_record(query: Query, topics: Topics) -> None:
    topic = orders(topics, order(1, "Bern", 2.5), order(2, "Rome", 4), partitions=2)
    done = query.run(f"SELECT * FROM `{topic}`", schema=SCHEMA)
    assert (done.rows, done.malformed) == (2, {})
    rows = sorted(query.lines, key=lambda row: row["id"])
    assert list(rows[0]) == [
        "key",
        "id",
        "city",
        "amount",
        "at",
        "timestamp",
        "partition",
        "offset",
        "headers",
    ]
    assert [(r["key"], r["city"], r["amount"], r["partition"], r["offset"]) for r in rows] == [
        ("k0", "Bern", 2.5, 0, 0),
        ("k1", "Rome", 4.0, 1, 0),
    ]
    assert rows[0]["headers"] == [{"key": "h", "value": "x"}]
    assert rows[0]["at"].startswith("2025-01-31T13:00:00")  # the session's time zone, one hour ahead
    assert sum(batch.total for batch in query.batches) == 2


def test_columns_are_inferred_from_the_newest_records(query: Query, topics: Topics) -> None:
    topic = orders(topics, order(1, "Bern", 2.5), {"id": 2, "extra": {"a": [1]}}, "no json")
    done = query.run(f"SELECT id, city, at, extra.a[0] AS a FROM `{topic}`")
    assert [(row["id"], row["city"], row["a"]) for row in query.lines] == [(1, "Bern", None), (2, None, 1)]
    assert done.schemas == {
        topic: "amount DOUBLE, at TIMESTAMP, city STRING, extra struct<a:array<bigint>>, id BIGINT"
    }
    assert done.malformed == {topic: 1}


def test_text_values(query: Query, topics: Topics) -> None:
    topic = orders(topics, "GET /a", "PUT /b")
    query.run(f"SELECT split(value, ' ')[0] AS verb, key FROM `{topic}`", value="text")
    assert query.lines == [{"verb": "GET", "key": "k0"}, {"verb": "PUT", "key": "k1"}]


def test_a_field_hides_the_column_of_the_record(query: Query, topics: Topics) -> None:
    topic = orders(topics, {"timestamp": "mine", "key": 5})
    query.run(f"SELECT timestamp, key, _key, _timestamp FROM `{topic}`", schema="timestamp STRING, key INT")
    (row,) = query.lines
    assert (row["timestamp"], row["key"], row["_key"]) == ("mine", 5, "k0")
    assert row["_timestamp"].startswith("2023-11-14T")


def test_windows_close_behind_the_watermark(query: Query, topics: Topics) -> None:
    topic = orders(topics, *(order(n, "Bern", 1, minute=n) for n in (0, 1, 4, 5, 9, 30)))
    text = f"""
        SELECT window.start AS begin, count(*) AS orders, sum(amount) AS amount
        FROM `{topic}` GROUP BY window(at, '5 minutes')"""
    query.run(text, schema=SCHEMA, watermark="at 10 minutes", mode="append")
    # 12:30 minus ten minutes is behind both windows; the one that 12:30 is in stays open.
    assert [
        (row["begin"][11:16], row["orders"]) for row in sorted(query.lines, key=lambda r: r["begin"])
    ] == [
        ("13:00", 3),
        ("13:05", 2),
    ]


def test_groups_are_shown_as_they_change(query: Query, topics: Topics) -> None:
    topic = orders(topics, order(1, "Bern", 1), order(2, "Rome", 2), order(3, "Bern", 4))
    query.run(f"SELECT city, sum(amount) AS s FROM `{topic}` GROUP BY city", schema=SCHEMA)
    assert sorted((row["city"], row["s"]) for row in query.lines) == [("Bern", 5.0), ("Rome", 2.0)]


def test_sorted_groups_are_shown_whole(query: Query, topics: Topics) -> None:
    topic = orders(topics, order(1, "Bern", 1), order(2, "Rome", 2), order(3, "Bern", 4))
    query.run(f"SELECT city, sum(amount) AS s FROM `{topic}` GROUP BY city ORDER BY s DESC", schema=SCHEMA)
    assert [row[0] for row in query.batches[-1].rows] == ["Bern", "Rome"]


def test_to_a_topic_and_on_from_there(query: Query, topics: Topics) -> None:
    source, target = orders(topics, order(1, "Bern", 1), order(2, "Rome", 2)), topics.create("out")
    text = f"SELECT city AS key, id, amount * 2 AS doubled, NULL AS nothing FROM `{source}`"
    to = {"schema": SCHEMA, "to": f"topic:{target}"}
    assert query.run(text, **to).rows == 2
    first = topics.consume(target, 2)
    assert {sent.key: json.loads(sent.value or b"") for sent in first} == {
        b"Bern": {"id": 1, "doubled": 2.0, "nothing": None},
        b"Rome": {"id": 2, "doubled": 4.0, "nothing": None},
    }
    send(topics, source, order(3, "Oslo", 3))
    assert query.run(text, **to).rows == 1
    assert [sent.key for sent in topics.consume(target, 3)].count(b"Oslo") == 1


def test_to_a_lake_once_each(query: Query, topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    source, lake = orders(topics, order(1, "Bern", 1)), str(tmp_path / "lake")
    text = f"SELECT id, city FROM `{source}`"
    query.run(text, schema=SCHEMA, to=lake)
    send(topics, source, order(2, "Rome", 1))
    done = query.run(text, schema=SCHEMA, to=lake)
    assert sorted(map(tuple, spark.read.parquet(lake).collect())) == [(1, "Bern"), (2, "Rome")]
    # The same folder with another checkpoint would silently lose the first batches.
    said = query.refused(f"SELECT id FROM `{source}`", schema=SCHEMA, to=lake)
    assert "another checkpoint" in said
    assert done.checkpoint is not None
    assert Path(done.checkpoint).is_relative_to(tmp_path / "state")


def test_a_checkpoint_belongs_to_its_query(query: Query, topics: Topics, tmp_path: Path) -> None:
    source, target = orders(topics, order(1, "Bern", 1)), topics.create("out")
    to = {"schema": SCHEMA, "to": f"topic:{target}", "checkpoint": str(tmp_path / "c")}
    query.run(f"SELECT id FROM `{source}`", **to)
    said = query.refused(f"SELECT id, city FROM `{source}`", **to)
    assert f"belongs to another query (SELECT id FROM `{source}`)" in said
    assert "another --checkpoint" in said
    assert "another schema" in query.refused(f"SELECT id FROM `{source}`", **(to | {"schema": "id BIGINT"}))


def test_inferred_columns_stay_as_they_were(query: Query, topics: Topics) -> None:
    source, target = orders(topics, {"id": 1}), topics.create("out")
    text, to = f"SELECT * FROM `{source}`", f"topic:{target}"
    query.run(text, to=to)
    send(topics, source, {"id": "two", "new": 1}, {"id": 3})
    done = query.run(text, to=to)
    assert (done.rows, done.malformed) == (2, {source: 1})
    values = [json.loads(sent.value or b"") for sent in topics.consume(target, 2)]
    assert [value["id"] for value in values] == [1, 3]
    assert "new" not in values[1]


@pytest.mark.parametrize(("malformed", "ids"), [("skip", [1, 3]), ("keep", [1, None, None, 3])])
def test_malformed_records_are_counted(
    query: Query, topics: Topics, malformed: str, ids: list[int | None]
) -> None:
    topic = orders(topics, {"id": 1}, "{broken", {"id": "text"}, {"id": 3})
    done = query.run(f"SELECT * FROM `{topic}`", schema="id INT", malformed=malformed)
    assert (done.rows, done.malformed) == (4, {topic: 2})
    assert [row["id"] for row in query.lines] == ids
    corrupt = [row.get("_corrupt") for row in query.lines]
    assert corrupt == ([None, "{broken", '{"id": "text"}', None] if malformed == "keep" else [None, None])


def test_malformed_records_can_end_the_query(query: Query, topics: Topics) -> None:
    topic = orders(topics, {"id": 1}, "{broken")
    said = query.refused(f"SELECT * FROM `{topic}`", schema="id INT", malformed="fail")
    assert "--malformed skip" in said


def test_a_record_without_a_value_is_a_row(query: Query, topics: Topics) -> None:
    topic = topics.create(config={"retention.ms": "-1"})
    topics.produce(topic, [Sent(None, b"gone")])
    query.run(f"SELECT key, id FROM `{topic}`", schema="id INT")
    assert query.lines == [{"key": "gone", "id": None}]


def test_two_topics_joined_with_a_table_of_the_session(
    query: Query, topics: Topics, spark: SparkSession
) -> None:
    bought = orders(topics, order(1, "Bern", 9), order(2, "Rome", 8), name="orders")
    paid = orders(topics, {"id": 2, "by": "card"}, name="paid")
    spark.createDataFrame([("Rome", "IT")], "city STRING, land STRING").createOrReplaceTempView("lands")
    text = f"""
        WITH bought AS (SELECT * FROM `{bought}`)
        SELECT b.id, p.by, l.land FROM bought b JOIN `{paid}` p ON b.id = p.id JOIN lands l ON l.city = b.city"""
    query.run(text, schema=[f"{bought}={SCHEMA}", f"{paid}=id INT, by STRING"])
    assert query.lines == [{"id": 2, "by": "card", "land": "IT"}]
    assert spark.catalog.tableExists("lands")
    assert not spark.catalog.tableExists(f"`{bought}`")


def test_latest_starts_at_the_end(query: Query, topics: Topics) -> None:
    topic = orders(topics, {"id": 1})
    assert query.run(f"SELECT * FROM `{topic}`", schema="id INT", start="latest").rows == 0


def test_changed_groups_to_a_topic(query: Query, topics: Topics) -> None:
    source, target = orders(topics, order(1, "Bern", 1), order(2, "Bern", 2)), topics.create("out")
    text = f"SELECT city AS key, sum(amount) AS s FROM `{source}` GROUP BY city"
    to = {"schema": SCHEMA, "to": f"topic:{target}", "mode": "update"}
    query.run(text, **to)
    send(topics, source, order(3, "Bern", 4))
    query.run(text, **to)
    sums = [(sent.key, json.loads(sent.value or b"")) for sent in topics.consume(target, 2)]
    assert sums == [(b"Bern", {"s": 3.0}), (b"Bern", {"s": 7.0})]
