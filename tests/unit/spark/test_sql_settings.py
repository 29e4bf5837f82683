"""What people write for a streaming query, checked before Spark starts."""

from pathlib import Path
from typing import Any

import pytest

from penstock.spark.pipelines.sql.settings import (
    Malformed,
    Mode,
    PerTopic,
    SqlUseError,
    Start,
    Target,
    TargetKind,
    Value,
    Watermark,
    parse_settings,
)

QUERY = "SELECT * FROM orders"


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("console", TargetKind.CONSOLE, ""),
        ("topic:out", TargetKind.TOPIC, "out"),
        ("topic:a.b-c_d", TargetKind.TOPIC, "a.b-c_d"),
        ("hdfs://host/lake/", TargetKind.LAKE, "hdfs://host/lake"),
        ("s3a://bucket/x", TargetKind.LAKE, "s3a://bucket/x"),
        ("file:/lake", TargetKind.LAKE, "file:/lake"),
        ("/lake", TargetKind.LAKE, "/lake"),
        ("./lake", TargetKind.LAKE, str(Path("lake").absolute())),
    ],
)
def test_targets(text: str, kind: TargetKind, name: str) -> None:
    assert Target.parse(text) == Target(kind, name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("out", "Write topic:out for a topic, ./out for a folder, or console"),
        ("topic:", "cannot be a topic"),
        ("topic:a b", "cannot be a topic"),
    ],
)
def test_targets_that_are_none(text: str, said: str) -> None:
    with pytest.raises(SqlUseError, match=said):
        Target.parse(text)


def test_texts_for_every_topic_and_for_some() -> None:
    given = PerTopic.parse("--schema", ["id INT", "orders=id BIGINT COMMENT 'a=b'", "a.b-c = x STRING"])
    assert given.get("other") == "id INT"
    assert given.get("orders") == "id BIGINT COMMENT 'a=b'"
    assert given.get("a.b-c") == "x STRING"
    assert PerTopic.parse("--schema", "id INT COMMENT 'a=b'").everywhere == "id INT COMMENT 'a=b'"
    assert PerTopic.parse("--schema", {"orders": "id INT"}).get("other") is None
    assert PerTopic.parse("--schema", None).get("orders") is None


@pytest.mark.parametrize("texts", [["id INT", "x INT"], ["t=id INT", "t=x INT"], [""], ["t="]])
def test_texts_that_contradict_or_are_empty(texts: list[str]) -> None:
    with pytest.raises(SqlUseError, match="--schema"):
        PerTopic.parse("--schema", texts)


def test_a_text_for_a_topic_that_is_not_read() -> None:
    with pytest.raises(SqlUseError, match="for topic paid, but the query reads orders"):
        PerTopic.parse("--schema", "paid=id INT").check_topics("--schema", ["orders"])


@pytest.mark.parametrize(
    ("text", "column", "delay"),
    [
        ("at 10 minutes", "at", "10 minutes"),
        ("`at` 1 hour", "at", "1 hour"),
        ("t interval 5 s", "t", "interval 5 s"),
    ],
)
def test_watermarks(text: str, column: str, delay: str) -> None:
    assert Watermark.parse(text) == Watermark(column, delay)


@pytest.mark.parametrize("text", ["", "at", "at soon", "10 minutes"])
def test_watermarks_that_are_none(text: str) -> None:
    with pytest.raises(SqlUseError, match="write --watermark 'at 10 minutes'"):
        Watermark.parse(text)


def test_what_holds_when_nothing_is_said() -> None:
    asked = parse_settings(QUERY)
    assert (asked.start, asked.malformed, asked.mode) == (Start.EARLIEST, Malformed.SKIP, None)
    assert asked.value_of("orders") is Value.JSON
    assert asked.watermark_of("orders") is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"value": "xml"}, "--value 'xml': use json, text"),
        ({"start": "newest"}, "--from 'newest': use earliest, latest"),
        ({"mode": "upsert"}, "--mode 'upsert': use append, update, complete"),
        ({"malformed": "drop"}, "--malformed 'drop': use skip, keep, fail"),
        ({"to": "/lake", "mode": "update"}, "files can only be added to a lake"),
        ({"watermark": "at"}, "--watermark 'at'"),
        ({"query": " "}, "the query is empty"),
    ],
)
def test_settings_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SqlUseError, match=said):
        parse_settings(**({"query": QUERY} | options))


def test_text_has_no_columns_of_its_own() -> None:
    asked = parse_settings(QUERY, value="text", schema="orders=id INT")
    with pytest.raises(SqlUseError, match="leave one of them away"):
        asked.value_of("orders")


def test_identity_is_what_the_state_depends_on() -> None:
    asked = parse_settings(QUERY)
    assert (
        asked.identity()
        == parse_settings(f"{QUERY} ;", start="latest", once=True, checkpoint="/c").identity()
    )
    for other in (
        parse_settings(QUERY + " WHERE id > 1"),
        parse_settings(QUERY, to="topic:out"),
        parse_settings(QUERY, schema="id INT"),
        parse_settings(QUERY, watermark="at 1 hour"),
        parse_settings(QUERY, mode=Mode.UPDATE),
        parse_settings(QUERY, malformed="keep"),
        parse_settings(QUERY, value="text"),
    ):
        assert other.identity() != asked.identity()
