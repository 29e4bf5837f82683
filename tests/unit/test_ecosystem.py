"""docs/ecosystem.md says what was tested, and no more."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.clients import recorder
from tools import ecosystem

if TYPE_CHECKING:
    from pathlib import Path

VERSION = {"version": "1", "tests": 3}


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the results and the page are written instead."""
    monkeypatch.setattr(ecosystem, "PASSED", tmp_path / "ecosystem.json")
    monkeypatch.setattr(ecosystem, "PAGE", tmp_path / "ecosystem.md")
    ecosystem.PASSED.write_text(json.dumps({"aiokafka": VERSION, "kafka-python": VERSION}))
    return tmp_path


def test_the_page_is_fresh() -> None:
    assert ecosystem.PAGE.read_text() == ecosystem.page(), "run `make docs`"


def test_what_is_written_as_passed_is_what_is_pinned_now() -> None:
    """A new version of a library has to be tested before the page may tell of it."""
    for row in ecosystem.rows():
        found = ecosystem.passed().get(row["name"])
        if found is not None and not row["version"].startswith("command"):
            assert recorder.version_of(row["version"]) == found["version"], (
                f"run `make clients` for {row['name']}"
            )


def test_a_row_counts_when_all_its_tests_passed(data: Path) -> None:
    recorder.record(Counter({"kafkajs": 2}), failed=set(), left_out=set())
    assert ecosystem.passed()["kafkajs"] == {"version": "2.2.4", "tests": 2}
    assert "| KafkaJS | 2.2.4 | 2 |" in (data / "ecosystem.md").read_text()


def test_a_failure_takes_a_row_out(data: Path) -> None:
    recorder.record(Counter({"aiokafka": 80}), failed={"aiokafka"}, left_out=set())
    assert set(ecosystem.passed()) == {"kafka-python"}
    assert "| aiokafka | | not tested |" in (data / "ecosystem.md").read_text()


def test_half_a_run_changes_nothing(data: Path) -> None:
    recorder.record(Counter({"aiokafka": 1, "kcat": 1}), failed=set(), left_out={"aiokafka", "kcat"})
    assert ecosystem.passed() == {"aiokafka": VERSION, "kafka-python": VERSION}
