"""How long it will take, from how fast it went."""

import pytest

from penstock.cli.progress import Pace, bar_text, left_text


def test_nobody_can_tell_before_something_moved() -> None:
    pace = Pace()
    pace.note(0.0, 10)
    assert pace.left_seconds(90) is None
    pace.note(1.0, 10)
    assert pace.left_seconds(90) is None
    assert pace.left_seconds(0) == 0


def test_what_went_of_late_counts() -> None:
    pace = Pace()
    for second in range(100):
        pace.note(float(second), 0 if second < 60 else (second - 60) * 2)
    assert pace.left_seconds(50) == pytest.approx(25)


def test_moves_that_come_to_it_only_make_it_unknown() -> None:
    pace = Pace()
    pace.note(0.0, -100)
    pace.note(1.0, -400)
    assert pace.left_seconds(400) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "not known"),
        (0.2, "about 1 s"),
        (59, "about 59 s"),
        (600, "about 10 min"),
        (5400, "about 1.5 h"),
    ],
)
def test_people_are_told_in_units_of_theirs(seconds: float | None, text: str) -> None:
    assert text in left_text(seconds)


def test_a_bar_of_characters() -> None:
    assert bar_text(0, 0).endswith("100 %")
    assert bar_text(1, 4) == "█████░░░░░░░░░░░░░░░  25 %"
    assert bar_text(9, 4).count("█") == 20
