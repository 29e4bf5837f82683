"""kafka-python's own integration tests pass where they did before (`make clients`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.clients.kafka_python import suite

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> suite.Outcome:
    work_dir: Path = tmp_path_factory.mktemp("kafka-python")
    with suite.broker() as peer:
        return suite.run(peer, work_dir / "suite")


def test_what_passed_still_passes(outcome: suite.Outcome) -> None:
    gone = {test: outcome.failed.get(test, "skipped or gone") for test in suite.passing() - outcome.passed}
    assert not gone


def test_what_passes_is_listed(outcome: suite.Outcome) -> None:
    """The list only grows: add what is named here to passing.txt."""
    assert sorted(outcome.passed - suite.passing()) == []


def test_what_fails_is_listed_with_its_reason(outcome: suite.Outcome) -> None:
    known = suite.failing()
    assert {test: why for test, why in outcome.failed.items() if test not in known} == {}
    assert sorted(known.keys() - outcome.failed.keys()) == [], "listed as failing, but no longer so"
