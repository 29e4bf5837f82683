"""docs/protocol.md tells what is served."""

from pathlib import Path

from penstock.frontends.kafka.reference import protocol_page

PAGE = Path(__file__).parents[3] / "docs" / "protocol.md"


def test_the_protocol_page_is_fresh() -> None:
    assert PAGE.read_text() == protocol_page(), "run `make docs`"
