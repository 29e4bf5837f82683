"""Spark's errors as one sentence: what is wrong, where in the query, what to do. No plan, no Java stack.

Spark's text looks like one of

    [PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601 (line 1, pos 14)   == SQL == …
    [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column … SQLSTATE: 42703; line 1 pos 7;        'Project …
"""

import re

from penstock.spark.errors import reason
from penstock.spark.pipelines.sql.settings import Mode, SqlError

_CONDITION = re.compile(r"^\[([A-Z0-9_.]+)\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w{5}")
_POSITION = re.compile(r"[;(]?\s*\(?line (\d+),? pos (\d+)\)?;?")
_AROUND_CHARACTERS = 24
_LONG = 400  # some of Spark's sentences name every column there is

_APPEND = (
    "the groups of this query change with every record, and append only writes what is final: give "
    '--watermark "COLUMN DELAY" and group by window(COLUMN, …), or use --mode update or --mode complete'
)
# A part of Spark's message or its condition, and what to tell the user instead of or after it.
_INSTEAD: tuple[tuple[str, str], ...] = (
    (
        "Sorting is not supported on streaming",
        "ORDER BY needs all rows at once: use it over a GROUP BY with --mode complete, or leave it away",
    ),
    (
        "LIMIT is not supported",
        "LIMIT does not go together with this --mode: use --mode append, or leave it away",
    ),
    (
        "MALFORMED_RECORD_IN_PARSING",
        "a record is not the JSON that the columns need: use --malformed skip or keep, or correct --schema",
    ),
    (
        "Multiple streaming queries are concurrently using",
        "this query is already running with the same checkpoint: see `penstock pipeline status`",
    ),
    (
        "Concurrent update to the log",
        "this query is already running with the same checkpoint: see `penstock pipeline status`",
    ),
)
_AFTER: tuple[tuple[str, str], ...] = (
    (
        "without a watermark",
        'give --watermark TOPIC="COLUMN DELAY" for both topics and a range of time in the join',
    ),
    ("EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE", "give the column the type TIMESTAMP in --schema"),
    ("UnsupportedFileSystemException", "the Spark packages for this kind of URI are missing: give --conf"),
    (
        "ClassNotFoundException: Class org.apache.hadoop.fs.s3a",
        "give --conf spark.jars.packages=…hadoop-aws…",
    ),
)


def explained(error: Exception, query: str = "", *, mode: Mode | None = None) -> SqlError:
    """`query` is the text that positions in the error refer to."""
    text = str(error)
    condition = _condition(error, text)
    if condition.startswith("STREAMING_OUTPUT_MODE"):
        return SqlError(_about_mode(text, mode))
    for mark, said in _INSTEAD:
        if mark in text or mark == condition:
            return SqlError(said)
    sentence = shortened(reason(error), query)
    for mark, advice in _AFTER:
        if mark in text or mark == condition:
            return SqlError(f"{sentence}; {advice}")
    return SqlError(sentence)


def _condition(error: Exception, text: str) -> str:
    get = getattr(error, "getCondition", None)
    found = get() if get is not None else None
    if not found:
        match = _CONDITION.match(text.strip())
        found = match[1] if match else ""
    return str(found)


def _about_mode(text: str, mode: Mode | None) -> str:
    if mode is Mode.COMPLETE and "no streaming aggregations" in text:
        return "--mode complete writes all groups again each time, and this query has no GROUP BY: use --mode append"
    if mode is Mode.APPEND and "aggregation" in text:
        return _APPEND
    return f"{shortened(text, '')}; choose another --mode"


def shortened(text: str, query: str) -> str:
    """The first sentence of Spark's message, with the place in the query made visible."""
    line = text.strip().splitlines()[0].strip() if text.strip() else "Spark gave no reason"
    line = _STATE.sub("", _CONDITION.sub("", line))
    found = _POSITION.search(line)
    if found:
        line = line[: found.start()] + line[found.end() :]
    line = line.strip().rstrip(";.").strip()
    if len(line) > _LONG:
        line = line[:_LONG].rstrip() + "…"
    return f"{line} {_place(query, int(found[1]), int(found[2]))}" if found else line


def _place(query: str, line_number: int, position: int) -> str:
    lines = query.splitlines()
    where = f"line {line_number}, column {position + 1}"
    if not 0 < line_number <= len(lines):
        return f"({where})"
    line = lines[line_number - 1]
    before = line[max(0, position - _AROUND_CHARACTERS) : position]
    after = line[position : position + _AROUND_CHARACTERS]
    return f"({where}, at the arrow: {before}→{after})"
