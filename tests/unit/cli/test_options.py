"""Times as people write them."""

from datetime import UTC, datetime

import pytest

from penstock.cli.errors import WrongUseError
from penstock.cli.options import parse_time
from penstock.core.text import count_text, size_text

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("250ms", NOW_MS - 250),
        ("5m", NOW_MS - 300_000),
        ("2h", NOW_MS - 7_200_000),
        ("1d", NOW_MS - 86_400_000),
        ("99999999d", 0),
        ("1699999999999", 1_699_999_999_999),
        ("2023-11-14T22:13:20+00:00", NOW_MS),
        ("2023-11-14T22:13:20.500Z", NOW_MS + 500),
        ("1969-12-31T23:59:59.999Z", 0),  # not -1, which is the end to brokers
    ],
)
def test_times(text: str, expected_ms: int) -> None:
    assert parse_time(text, NOW_MS) == expected_ms


def test_time_without_zone_is_local() -> None:
    local = datetime.fromtimestamp(NOW_MS / 1000, UTC).astimezone().replace(tzinfo=None)
    assert parse_time(local.isoformat(), NOW_MS) == NOW_MS


@pytest.mark.parametrize("text", ["", "soon", "5 minutes", "-5m", "2023-13-01", "\u0665m"])
def test_what_is_no_time_is_wrong_use(text: str) -> None:
    with pytest.raises(WrongUseError, match="is not a time"):
        parse_time(text, NOW_MS)


def test_sizes_and_counts_for_people() -> None:
    assert [size_text(n) for n in (0, 999, 1500, 2.5e9, 3e13)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.5 GB",
        "30.0 TB",
    ]
    assert [count_text(n, "topic") for n in (0, 1, 2000)] == ["0 topics", "1 topic", "2,000 topics"]
