"""Doctor's judgement of what a broker set aside."""

import json
import shutil
from pathlib import Path

import pytest

from penstock.diagnosis.findings import Level
from penstock.diagnosis.quarantine import quarantine
from penstock.storage.data_format import METADATA_FILE
from penstock.storage.layout import PARTITION_FILE


def test_quarantine_content_is_named(tmp_path: Path) -> None:
    assert quarantine(tmp_path).level is Level.OK
    (tmp_path / "quarantine" / "orders-0-abc.0").mkdir(parents=True)
    finding = quarantine(tmp_path)
    assert finding.level is Level.WARN
    assert "orders-0-abc.0" in finding.found


def set_aside(data: Path, *names: str) -> None:
    for name in names:
        (data / "quarantine" / name).mkdir(parents=True)
        (data / "quarantine" / name / "00000000000000000000.log").write_bytes(b"records")


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """The directory of a partition that a broker serves which is alone; its log is empty still."""
    (tmp_path / METADATA_FILE).touch()
    place = tmp_path / "topics/my-orders/Partition-0"
    place.mkdir(parents=True)
    (place / PARTITION_FILE).write_text(json.dumps({"topic_id": "0" * 32}))
    (place / "00000000000000000000.log").touch()
    return place


def test_the_log_of_a_partition_that_is_served_is_not_to_be_deleted(tmp_path: Path, served: Path) -> None:
    name = "my-orders-0-unknown.0"
    set_aside(tmp_path, f"my-orders-0-{'1' * 32}.0", "my-orders-1-unknown.0", "notes")
    assert quarantine(tmp_path).level is Level.WARN
    (tmp_path / "quarantine" / name).mkdir()
    assert quarantine(tmp_path).level is Level.WARN  # nothing is in it
    shutil.rmtree(tmp_path / "quarantine" / name)
    set_aside(tmp_path, name)
    finding = quarantine(tmp_path)
    assert finding.level is Level.FAIL
    assert name in finding.found
    assert finding.advice.startswith("keep them")
    assert "into its place" in finding.advice


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in a cluster"])
def test_all_that_are_to_be_kept_are_named_and_nothing_else(
    tmp_path: Path, served: Path, alone: bool
) -> None:
    """Who keeps three, and takes the rest for what others are, deletes the only copy of the rest."""
    names = [f"my-orders-{number}-unknown.0" for number in range(12)]
    for number in range(12):
        (served.parent / f"Partition-{number}").mkdir(exist_ok=True)
    others = [f"my-orders-0-{'1' * 32}.0", "my-orders-40-unknown.0"]
    set_aside(tmp_path, *names, *others)
    if not alone:
        (tmp_path / METADATA_FILE).unlink()
    told = quarantine(tmp_path).as_json()
    assert told["level"] == "fail"
    for name in names:
        assert name in str(told["found"])
    for name in others:
        assert name not in str(told["found"])
        assert name not in str(told["advice"])


def test_all_that_may_be_deleted_are_named(tmp_path: Path) -> None:
    names = [f"orders-{number}-{'1' * 32}.0" for number in range(12)]
    set_aside(tmp_path, *names)
    finding = quarantine(tmp_path)
    assert finding.level is Level.WARN
    assert all(name in finding.found for name in names)


def test_a_replica_that_healing_left_behind_is_never_put_back(tmp_path: Path, served: Path) -> None:
    """It has the topic's id: the broker was away, others took its part, and later it got the partition again."""
    set_aside(tmp_path, f"my-orders-0-{'0' * 32}.3")
    finding = quarantine(tmp_path)
    assert finding.level is Level.WARN
    assert "into its place" not in finding.advice
    assert "put none back" in finding.advice


@pytest.mark.parametrize("why", ["in a cluster", "written to", "retained", "two of them"])
def test_nothing_is_put_in_the_place_of_a_log_that_may_have_more(
    tmp_path: Path, served: Path, why: str
) -> None:
    set_aside(tmp_path, "my-orders-0-unknown.0")
    if why == "in a cluster":
        (tmp_path / METADATA_FILE).unlink()
    elif why == "written to":
        (served / "00000000000000000000.log").write_bytes(b"records")
    elif why == "retained":
        (served / "00000000000000000000.log").rename(served / "00000000000000000007.log")
    else:
        set_aside(tmp_path, "my-orders-0-unknown.1")
    finding = quarantine(tmp_path)
    assert finding.level is Level.FAIL
    assert finding.advice.startswith("keep them")
    assert "safe place" in finding.advice
    assert "into its place" not in finding.advice
