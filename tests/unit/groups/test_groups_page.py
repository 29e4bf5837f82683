"""docs/groups.md tells the states as the tables have them."""

from pathlib import Path

from penstock.groups.reference import groups_page

PAGE = Path(__file__).parents[3] / "docs" / "groups.md"


def test_the_page_of_states_is_fresh() -> None:
    assert PAGE.read_text() == groups_page(), "run `make docs`"
