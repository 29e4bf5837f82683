"""Spark's messages as people can use them."""

import pytest

from penstock.spark.pipelines.sql.explain import explained, shortened
from penstock.spark.pipelines.sql.settings import Mode, SqlError
from penstock.spark.pipelines.sql.tables import check_topics, nearest

SYNTAX = (
    "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'x': extra input 'x'. SQLSTATE: 42601 (line 1, pos 14)\n\n"
    "== SQL ==\nselect * form x\n--------------^^^\n"
)
COLUMN = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `idd` cannot be resolved. Did you mean one of the "
    "following? [`id`]. SQLSTATE: 42703; line 2 pos 7;\n'Project ['idd]\n+- Range (0, 3, step=1)\n"
)


def test_a_syntax_error_shows_its_place() -> None:
    assert shortened(SYNTAX, "select * form x") == (
        "Syntax error at or near 'x': extra input 'x' (line 1, column 15, at the arrow: select * form →x)"
    )


def test_a_plan_is_left_out() -> None:
    assert shortened(COLUMN, "select\n  1, a, idd") == (
        "A column with name `idd` cannot be resolved. Did you mean one of the following? [`id`] "
        "(line 2, column 8, at the arrow:   1, a,→ idd)"
    )


def test_a_place_outside_the_text_is_only_named() -> None:
    assert shortened(COLUMN, "one line").endswith("(line 2, column 8)")


def test_long_sentences_end() -> None:
    assert len(shortened("word " * 1000, "")) < 500


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (
            (
                "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append. This output mode "
                "is not supported for streaming aggregations without watermark on streaming DataFrames."
            ),
            Mode.APPEND,
            "--watermark",
        ),
        (
            (
                "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: complete. This output "
                "mode is not supported for no streaming aggregations on streaming DataFrames. SQLSTATE: 42KDE"
            ),
            Mode.COMPLETE,
            "use --mode append",
        ),
        ("Sorting is not supported on streaming DataFrames;\n~Sort", None, "GROUP BY with --mode complete"),
        ("Concurrent update to the log. Multiple streaming jobs", None, "penstock pipeline status"),
    ],
)
def test_what_to_do_is_said(text: str, mode: Mode | None, said: str) -> None:
    assert said in str(explained(RuntimeError(text), mode=mode))


def test_the_nearest_topic() -> None:
    check_topics(["orders"], ["orders", "paid"])
    with pytest.raises(SqlError, match=r"there is no topic ordrs: did you mean orders\?"):
        check_topics(["ordrs"], ["orders", "paid"])
    with pytest.raises(SqlError, match="differ only in case"):
        check_topics(["Orders", "orders"], ["Orders", "orders"])
    assert "topic list" in nearest("zzz", ["orders"])
    assert "topic create" in nearest("zzz", [])
