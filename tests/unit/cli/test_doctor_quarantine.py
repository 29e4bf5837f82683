"""Doctor's judgement of what a broker set aside."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.diagnosis.findings import Level
from penstock.diagnosis.quarantine import quarantine
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.data_format import METADATA_FILE
from penstock.storage.layout import PARTITION_FILE, RECOVERY_POINT_FILE


def test_quarantine_content_is_named(tmp_path: Path) -> None:
    assert quarantine(tmp_path, is_running=False).level is Level.OK
    (tmp_path / "quarantine" / "orders-0-abc.0").mkdir(parents=True)
    finding = quarantine(tmp_path, is_running=False)
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
    ended_at(place, 0)
    return place


def ended_at(place: Path, offset: int) -> None:
    point = RecoveryPoint(offset, offset, offset, 0, 0, -1, 0, -1, sealed=())
    (place / RECOVERY_POINT_FILE).write_bytes(point.dump())


def test_the_log_of_a_partition_that_is_served_is_not_to_be_deleted(tmp_path: Path, served: Path) -> None:
    name = "my-orders-0-unknown.0"
    set_aside(tmp_path, f"my-orders-0-{'1' * 32}.0", "my-orders-1-unknown.0", "notes")
    assert quarantine(tmp_path, is_running=False).level is Level.WARN
    (tmp_path / "quarantine" / name).mkdir()
    assert quarantine(tmp_path, is_running=False).level is Level.WARN  # nothing is in it
    shutil.rmtree(tmp_path / "quarantine" / name)
    set_aside(tmp_path, name)
    finding = quarantine(tmp_path, is_running=False)
    assert finding.level is Level.FAIL
    assert name in finding.found
    assert finding.advice.startswith("keep them")
    assert "into its place" in finding.advice
    assert "move what is in its place to a safe place, keep that" in finding.advice


def test_how_it_comes_back_is_not_said_while_the_broker_may_write(tmp_path: Path, served: Path) -> None:
    """What comes until it is stopped would go with what is replaced."""
    set_aside(tmp_path, "my-orders-0-unknown.0")
    finding = quarantine(tmp_path, is_running=True)
    assert finding.level is Level.FAIL
    assert finding.advice.startswith("keep them")
    assert "into its place" not in finding.advice
    assert "stop the broker, and ask `penstock doctor` again" in finding.advice


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
    told = quarantine(tmp_path, is_running=False).as_json()
    assert told["level"] == "fail"
    for name in names:
        assert name in str(told["found"])
    for name in others:
        assert name not in str(told["found"])
        assert name not in str(told["advice"])


def test_all_that_may_be_deleted_are_named(tmp_path: Path) -> None:
    names = [f"orders-{number}-{'1' * 32}.0" for number in range(12)]
    set_aside(tmp_path, *names)
    finding = quarantine(tmp_path, is_running=False)
    assert finding.level is Level.WARN
    assert all(name in finding.found for name in names)


def test_a_replica_that_healing_left_behind_is_never_put_back(tmp_path: Path, served: Path) -> None:
    """It has the topic's id: the broker was away, others took its part, and later it got the partition again."""
    set_aside(tmp_path, f"my-orders-0-{'0' * 32}.3")
    finding = quarantine(tmp_path, is_running=False)
    assert finding.level is Level.WARN
    assert "into its place" not in finding.advice
    assert "put none back" in finding.advice


def in_a_cluster(data: Path, served: Path) -> None:
    (data / METADATA_FILE).unlink()


def written_to(data: Path, served: Path) -> None:
    (served / "00000000000000000000.log").write_bytes(b"records")


def retained(data: Path, served: Path) -> None:
    (served / "00000000000000000000.log").rename(served / "00000000000000000007.log")


def two_of_them(data: Path, served: Path) -> None:
    set_aside(data, "my-orders-0-unknown.1")


def no_log(data: Path, served: Path) -> None:
    """Somebody took it away: nothing says that it was empty."""
    (served / "00000000000000000000.log").unlink()


def no_log_but_a_point(data: Path, served: Path) -> None:
    no_log(data, served)
    ended_at(served, 7)


def lost_its_end(data: Path, served: Path) -> None:
    ended_at(served, 7)


def no_recovery_point(data: Path, served: Path) -> None:
    (served / RECOVERY_POINT_FILE).unlink()


def damaged_recovery_point(data: Path, served: Path) -> None:
    (served / RECOVERY_POINT_FILE).write_bytes(b"nothing")


def part_of_it_set_aside(data: Path, served: Path) -> None:
    (served / "00000000000000000003.log.damaged").write_bytes(b"records")


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize(
    "happened",
    [
        in_a_cluster,
        written_to,
        retained,
        two_of_them,
        no_log,
        no_log_but_a_point,
        lost_its_end,
        no_recovery_point,
        damaged_recovery_point,
        part_of_it_set_aside,
    ],
)
def test_nothing_is_put_in_the_place_of_a_log_that_may_have_more(
    tmp_path: Path, served: Path, happened: Callable[[Path, Path], None], is_running: bool
) -> None:
    set_aside(tmp_path, "my-orders-0-unknown.0")
    happened(tmp_path, served)
    finding = quarantine(tmp_path, is_running=is_running)
    assert finding.level is Level.FAIL
    assert finding.advice.startswith("keep them")
    assert "safe place" in finding.advice
    assert "into its place" not in finding.advice
