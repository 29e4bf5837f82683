from pathlib import Path

from penstock.config.reference import configuration_page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"


def test_the_configuration_page_is_fresh():
    assert PAGE.read_text(encoding="utf-8") == configuration_page(), "run: python tools/gen_docs.py config"
