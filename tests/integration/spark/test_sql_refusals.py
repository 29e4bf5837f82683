"""What a query cannot do is said in one sentence, without a plan or a Java stack."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.integration.spark.topics import Sent, Topics

from penstock.spark.pipelines.sql import SqlError, sql
from penstock.testing import BrokerProcess

SCHEMA = "id INT, city STRING, at TIMESTAMP"
GROUPED = "SELECT city, count(*) AS n FROM orders GROUP BY city"


@pytest.fixture(scope="module")
def orders(running: BrokerProcess) -> Iterator[Topics]:
    """`orders` has records, `empty` has none, `text` has no JSON."""
    topics = Topics(running.bootstrap)
    for name in ("orders", "empty", "text"):
        topics.create(name, config={"retention.ms": "-1"}, exact=True)
    topics.produce("orders", [Sent(json.dumps({"id": 1, "city": "Bern"}).encode())])
    topics.produce("text", [Sent(b"plain words")])
    yield topics
    for name in ("orders", "empty", "text"):
        topics.delete(name)


REFUSALS: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "syntax",
        "SELECT id\nFROM orders WHERE (id > 1",
        {},
        "Syntax error at or near end of input (line 2, column 26, at the arrow: ROM orders WHERE (id > 1→)",
    ),
    (
        "two queries",
        "SELECT id FROM orders; SELECT 2",
        {},
        "line 1, column 24, at the arrow: SELECT id FROM orders; →SE",
    ),
    ("statement", "DROP TABLE orders", {}, "only queries can run as a pipeline"),
    ("insert", "INSERT INTO orders SELECT 1", {}, "only queries can run as a pipeline"),
    ("no topic", "SELECT 1", {}, "the query reads no topic: name one after FROM"),
    ("unknown topic", "SELECT * FROM ordres", {}, "there is no topic ordres: did you mean orders?"),
    ("dots", "SELECT * FROM my.orders", {}, "in backticks: `my.orders`"),
    ("unknown column", "SELECT ctiy FROM orders", {}, "with name `ctiy` cannot be resolved. Did you mean"),
    ("unknown function", "SELECT upperr(city) FROM orders", {}, "`upperr`"),
    (
        "append without watermark",
        GROUPED,
        {"mode": "append"},
        '--watermark "COLUMN DELAY" and group by window(COLUMN',
    ),
    (
        "complete without groups",
        "SELECT id FROM orders",
        {"mode": "complete"},
        "no GROUP BY: use --mode append",
    ),
    ("sort", "SELECT id FROM orders ORDER BY id", {}, "ORDER BY needs all rows at once"),
    (
        "schema type",
        "SELECT * FROM orders",
        {"schema": "id INT, city STRNG"},
        'Unsupported data type "STRNG"',
    ),
    ("schema twice", "SELECT * FROM orders", {"schema": "id INT, ID INT"}, "has the column id twice"),
    (
        "schema reserved",
        "SELECT * FROM orders",
        {"schema": "_corrupt INT"},
        "for malformed records: rename it",
    ),
    (
        "schema of another",
        "SELECT * FROM orders",
        {"schema": "text=id INT"},
        "for topic text, but the query reads orders",
    ),
    (
        "schema of text",
        "SELECT * FROM orders",
        {"value": "text", "schema": "orders=id INT"},
        "leave one of them away",
    ),
    (
        "nothing to infer",
        "SELECT * FROM empty",
        {"schema": None},
        "topic empty has no records to infer columns from",
    ),
    ("not json", "SELECT * FROM text", {"schema": None}, "topic text are no JSON objects: give --value text"),
    (
        "watermark column",
        "SELECT * FROM orders",
        {"watermark": "when 1 minute"},
        "no topic has that column (orders has",
    ),
    (
        "watermark of topic",
        "SELECT * FROM orders",
        {"watermark": "orders=when 1 minute"},
        "there is no column when",
    ),
    (
        "watermark type",
        "SELECT * FROM orders",
        {"watermark": "id 1 minute"},
        "give the column the type TIMESTAMP",
    ),
    ("watermark delay", "SELECT * FROM orders", {"watermark": "at 1 parsec"}, "Unable to parse '1 parsec'"),
    (
        "target",
        "SELECT * FROM orders",
        {"to": "topic:ordrs"},
        "there is no topic ordrs to write to: did you mean orders?",
    ),
    ("loop", "SELECT * FROM orders", {"to": "topic:orders"}, "would read its own rows again"),
    ("only a key", "SELECT city AS key FROM orders", {"to": "topic:empty"}, "only has the column key"),
    (
        "same names",
        "SELECT id, city AS id FROM orders",
        {"to": "topic:empty"},
        "2 columns the name id: rename them",
    ),
    ("wrong uri", "SELECT id FROM orders", {"to": "nofs://x/y"}, 'No FileSystem for scheme "nofs"'),
    ("option", "SELECT id FROM orders", {"options": {"failOnDataLos": "x"}}, "did you mean failOnDataLoss?"),
]


@pytest.mark.parametrize(
    ("text", "options", "said"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS]
)
def test_what_cannot_be_is_one_sentence(
    spark: SparkSession,
    orders: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    options: dict[str, Any],
    said: str,
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path))
    given = {"bootstrap": orders.bootstrap, "spark": spark, "once": True, "schema": SCHEMA}
    with pytest.raises(SqlError) as raised:
        sql(text, **(given | options))
    sentence = str(raised.value)
    assert said in sentence
    assert "\n" not in sentence
    assert "SQLSTATE" not in sentence
    assert len(sentence) < 600


def test_a_checkpoint_of_another_program(spark: SparkSession, orders: Topics, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with pytest.raises(SqlError, match="checkpoint of another program"):
        sql(GROUPED, bootstrap=orders.bootstrap, spark=spark, schema=SCHEMA, checkpoint=str(tmp_path))


def test_a_folder_that_is_an_archive(
    spark: SparkSession, orders: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path))
    (tmp_path / "lake" / "_penstock").mkdir(parents=True)
    with pytest.raises(SqlError, match="is an archive of topics"):
        sql(
            "SELECT id FROM orders",
            bootstrap=orders.bootstrap,
            spark=spark,
            schema=SCHEMA,
            to=str(tmp_path / "lake"),
        )
