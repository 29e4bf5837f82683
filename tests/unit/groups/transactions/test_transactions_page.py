"""docs/transactions.md tells the states as the table has them, and claims no more than there is."""

from pathlib import Path

from penstock.groups.transactions.reference import transactions_page

PAGE = Path(__file__).parents[4] / "docs" / "transactions.md"


def test_the_page_of_states_is_fresh() -> None:
    assert PAGE.read_text() == transactions_page(), "run `make docs`"
