"""What is refused is told once for each client and API, whatever clients call themselves."""

import pytest

from penstock.core.limits import CLIENT_ID_LOGGED_CHARS_MAX, REFUSALS_REMEMBERED_MAX
from penstock.services.refusals import Refusals


def test_a_line_for_each_client_and_api_and_no_second_one(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    for client, api in [("a", "X"), ("a", "X"), ("b", "X"), ("a", "Y"), (None, "X"), ("", "X"), ("a", "X")]:
        refusals.tell(client, "10.0.0.1", api, "it is not served")
    assert [record.getMessage() for record in caplog.records] == [
        "refused X of client 'a' at 10.0.0.1: it is not served",
        "refused X of client 'b' at 10.0.0.1: it is not served",
        "refused Y of client 'a' at 10.0.0.1: it is not served",
        "refused X of client '' at 10.0.0.1: it is not served",
    ]


def test_names_are_cut_and_stay_on_their_line(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    refusals.tell("n" * 30_000, "10.0.0.1", "X", "why")
    refusals.tell("n" * 30_001, "10.0.0.1", "X", "why")
    refusals.tell("a\nb", "10.0.0.1", "X", "why")
    long, odd = (record.getMessage() for record in caplog.records)
    assert "n" * CLIENT_ID_LOGGED_CHARS_MAX + "…" in long
    assert len(long) < 2 * CLIENT_ID_LOGGED_CHARS_MAX
    assert "\n" not in odd


def test_the_oldest_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    for number in range(REFUSALS_REMEMBERED_MAX + 1):
        refusals.tell(str(number), "10.0.0.1", "X", "why")
    refusals.tell("1", "10.0.0.1", "X", "why")
    assert len(caplog.records) == REFUSALS_REMEMBERED_MAX + 1
    refusals.tell("0", "10.0.0.1", "X", "why")
    assert len(caplog.records) == REFUSALS_REMEMBERED_MAX + 2
