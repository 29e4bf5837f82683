"""What clients send, or one trouble of many things, does not fill the log."""

import logging

import pytest

from penstock.core.limits import LOG_MESSAGE_CHARS_MAX, LOG_REPEATS_MAX, LOG_REPEATS_SECONDS
from penstock.server.logs import Cut, Repeats


@pytest.mark.parametrize("size", [10, LOG_MESSAGE_CHARS_MAX, 50 * LOG_MESSAGE_CHARS_MAX])
def test_long_messages_are_cut(size: int) -> None:
    record = logging.LogRecord("penstock", logging.INFO, "file", 1, "a name: %s", ("x" * size,), None)
    assert Cut().filter(record)
    said = record.getMessage()
    assert said.startswith("a name: xxx")
    assert len(said) <= LOG_MESSAGE_CHARS_MAX + 100
    assert ("…" in said) == (size + 8 > LOG_MESSAGE_CHARS_MAX)


def a_line(text: str, number: int, at: float) -> logging.LogRecord:
    record = logging.LogRecord("penstock", logging.ERROR, "here.py", 1, text, (number,), None)
    record.created = at
    return record


def test_lines_that_repeat_are_counted_and_others_are_written() -> None:
    repeats = Repeats()
    written = [repeats.filter(a_line("partition %d is gone", number, 0.0)) for number in range(10_000)]
    assert sum(written) == LOG_REPEATS_MAX
    assert repeats.filter(a_line("something else: %d", 1, 0.0))
    later = a_line("partition %d is gone", 7, LOG_REPEATS_SECONDS)
    assert repeats.filter(later)
    assert (
        later.getMessage()
        == f"partition 7 is gone (and {10_000 - LOG_REPEATS_MAX} more like this were left out)"
    )
