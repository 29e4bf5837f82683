"""docs/spark.md tells the options that there are, and their true defaults."""

import re
from pathlib import Path

from penstock.client.raw import EARLIEST, LATEST
from penstock.client.raw import options as client
from penstock.spark import option_names as names
from penstock.spark.options import read_options, write_options
from penstock.spark.schema import source_schema
from penstock.spark.sink_schema import _ALLOWED as SINK_COLUMNS

PAGE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
READ = {names.BOOTSTRAP: "b:1", "subscribe": "t"}


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def table(text: str) -> dict[str, list[str]]:
    """The rows of a table by what their first cell has in backticks."""
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if "|" in line
    ]
    return {row[0].strip("| `"): row[1:] for row in cells if row[0].strip("| ").startswith("`")}


def test_the_table_has_the_options_that_there_are() -> None:
    rows = table(section("Options"))
    assert rows.keys() == {*names.READ, *names.WRITE, names.BOOTSTRAP}
    assert {name for name, row in rows.items() if "write" in row[0]} == {*names.WRITE, names.BOOTSTRAP}
    assert {name for name, row in rows.items() if row[0] == "batch read"} == set(names.ENDING)
    assert {name for name, row in rows.items() if "read" in row[0]} == {*names.READ, names.BOOTSTRAP}


def test_the_defaults_are_true() -> None:
    defaults = {name: row[1] for name, row in table(section("Options")).items()}
    batch, stream = read_options(READ, streaming=False), read_options(READ, streaming=True)
    assert (batch.starting.everywhere, stream.starting.everywhere) == (EARLIEST, LATEST)
    assert defaults["startingOffsets"] == "`earliest` (batch), `latest` (stream)"
    assert batch.ending.everywhere == LATEST
    assert defaults["endingOffsets"] == "`latest`"
    assert batch.trigger_delay_ms_max == 15 * 60_000
    assert defaults["maxTriggerDelay"] == "`15m`"
    assert not batch.headers
    assert write_options({names.BOOTSTRAP: "b:1", "topic": "t"}).headers
    assert defaults["includeHeaders"] == "`false` (read), `true` (write)"
    assert batch.fail_on_data_loss
    assert defaults["failOnDataLoss"] == "`true`"
    assert not batch.committed
    assert defaults["isolation.level"] == "`read_uncommitted`"
    assert not batch.latest_when_no_timestamp
    assert defaults["startingOffsetsByTimestampStrategy"] == "`error`"
    told = {name for name, default in defaults.items() if "`" in default}
    assert len(told) == 7, "a default that no line above compares"


def test_other_names_are_told() -> None:
    prose = set(re.findall(r"`([\w.*]+)`", section("Options").rsplit("|\n", 1)[1]))
    assert {*names.WITHOUT_EFFECT, *client.HONOURED, *client._FETCH_BYTES} <= prose


def test_the_columns_are_those_of_the_source_and_the_sink() -> None:
    schema = source_schema(headers=True)
    rows = table(section("Columns"))
    assert list(rows) == schema.names
    kinds = {
        name: row[0].replace(": ", ":").replace(", ", ",").replace("long", "bigint")
        for name, row in rows.items()
    }
    assert kinds == {field.name: field.dataType.simpleString() for field in schema.fields}
    assert table(section("Write")).keys() == SINK_COLUMNS.keys()
