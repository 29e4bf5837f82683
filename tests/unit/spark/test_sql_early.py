"""What is said of a query before Spark runs: only what is sure."""

import pytest

from penstock.spark.pipelines.sql.early import check_early
from penstock.spark.pipelines.sql.settings import SqlError, parse_settings

THERE = ["orders", "my.orders", "customers"]


def said(query: str, to: str = "console") -> str:
    try:
        check_early(parse_settings(query, to=to), THERE)
    except SqlError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("query", "to", "words"),
    [
        ("SELECT * FROM ordres", "console", "there is no topic ordres: did you mean orders?"),
        ("SELECT * FROM (SELECT id FROM `my.ordres`)", "console", "there is no topic my.ordres"),
        ("SELECT * FROM orders o JOIN customer c ON o.id = c.id", "console", "there is no topic customer"),
        ("with a as (select * from ordres) select * from a", "console", "there is no topic ordres"),
        ("DROP TABLE orders", "console", "only queries can run as a pipeline"),
        (" -- first\n insert into orders select 1", "console", "only queries can run as a pipeline"),
        ("SELECT * FROM orders", "topic:totals", "there is no topic totals to write to"),
        ("SELECT * FROM orders", "topic:orders", "would read its own rows again"),
    ],
)
def test_what_cannot_work_is_said(query: str, to: str, words: str) -> None:
    assert words in said(query, to)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM orders, `my.orders`",
        "SELECT extract(year FROM at), trim(BOTH FROM name), 'FROM nowhere' FROM orders -- FROM nowhere",
        "SELECT * FROM orders WHERE a IS NOT DISTINCT FROM b /* FROM nowhere */",
        "WITH big (id, n) AS (SELECT id, n FROM orders), `small one` AS (SELECT 1) SELECT * FROM Big JOIN `small one`",
        "SELECT * FROM range(10) JOIN orders",
        "SELECT * FROM parquet.`/tmp/x`",
        "SELECT * FROM VALUES (1) AS t(a)",
        "SELECT (SELECT max(id) FROM customers) FROM orders LATERAL VIEW explode(items) t AS item",
        "FROM orders SELECT id",
        'SELECT "it\'s FROM nowhere" FROM orders',
        "SELECT id FROM orders WHERE (id > 1",
    ],
)
def test_what_is_not_sure_is_left_to_spark(query: str) -> None:
    assert said(query) == ""
