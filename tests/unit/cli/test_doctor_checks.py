"""Doctor's judgement, check by check."""

import os
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.diagnosis import data_dir as check_data
from penstock.diagnosis import system as check_system
from penstock.diagnosis.findings import Finding, Level
from penstock.diagnosis.ports import console_port, kafka_port

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:25 / /dev/shm rw,nosuid - tmpfs tmpfs rw
41 22 0:40 / /mnt/far\\040away rw master:3 - nfs4 server:/export rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/var/lib", "ext4"), ("/dev/shm/x", "tmpfs"), ("/dev/shmoo", "ext4"), ("/mnt/far away/data", "nfs4")],
)
def test_file_system_is_that_of_the_nearest_mount(tmp_path: Path, path: str, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert check_data._kind(Path(path), mounts) == kind


@pytest.mark.parametrize(("kind", "level"), [("ext4", Level.OK), ("tmpfs", Level.WARN), ("nfs4", Level.WARN)])
def test_memory_and_network_are_warned_about(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, level: Level
) -> None:
    monkeypatch.setattr(check_data, "_kind", lambda *_: kind)
    assert check_data._file_system(tmp_path).level is level


@pytest.mark.parametrize(
    ("free", "level"),
    [(10**12, Level.OK), (3 * 10**10, Level.WARN), (10**9, Level.WARN), (10**7, Level.FAIL)],
)
def test_disk_space(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, level: Level) -> None:
    stat = os.statvfs_result((4096, 4096, 10**12 // 4096, 0, free // 4096, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: stat)
    assert check_data._space(tmp_path).level is level


def test_data_from_the_future_fails(tmp_path: Path) -> None:
    segment = tmp_path / "topics" / "t" / "Partition-0" / "00000000000000000000.log"
    segment.parent.mkdir(parents=True)
    segment.touch()
    assert check_data._newest(tmp_path).level is Level.OK
    os.utime(segment, (0, time.time() + 3600))
    finding = check_data._newest(tmp_path)
    assert finding.level is Level.FAIL
    assert "set the clock" in finding.advice


def test_unreadable_identity_and_a_file_in_the_way_fail(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text("{")
    assert check_data._state(tmp_path).level is Level.FAIL
    (finding,) = check_data.data_findings(tmp_path / "identity.json" / "below")
    assert finding.level is Level.FAIL
    assert "--data-dir" in finding.advice


def test_a_directory_of_somebody_else_or_of_a_newer_format_fails(tmp_path: Path) -> None:
    assert check_data._state(tmp_path).level is Level.OK
    (tmp_path / "notes.txt").write_text("mine")
    found = check_data._state(tmp_path)
    assert (found.level, found.advice) == (Level.FAIL, "name one that is new or empty")
    (tmp_path / "identity.json").write_text('{"format": 99}')
    found = check_data._state(tmp_path)
    assert (found.level, "has format 99" in found.found) == (Level.FAIL, True)


def test_speed_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    assert "a second" in check_data._speed(tmp_path).found
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("limits", "level"),
    [
        ((1024, 524288), Level.OK),
        ((1024, resource.RLIM_INFINITY), Level.OK),
        ((1024, 4096), Level.WARN),
        ((256, 256), Level.FAIL),
    ],
)
def test_file_limits(limits: tuple[int, int], level: Level) -> None:
    assert check_system._files(*limits).level is level


def test_raising_the_limit_is_said() -> None:
    assert "raises it from 1,024" in check_system._files(1024, 524288).found


@pytest.mark.parametrize(
    ("now", "level"), [(0.0, Level.FAIL), (1_760_000_000.0, Level.OK), (9e9, Level.FAIL)]
)
def test_clock(now: float, level: Level) -> None:
    assert check_system._clock(now).level is level


@pytest.fixture
def mute_port() -> Iterator[int]:
    """Somebody who accepts and closes: no broker, no HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.listen()
        import threading

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_port_taken_by_something_else_fails_with_the_option_to_use(mute_port: int) -> None:
    findings: list[Finding] = [kafka_port("127.0.0.1", mute_port), console_port("127.0.0.1", mute_port)]
    assert [finding.level for finding in findings] == [Level.FAIL, Level.FAIL]
    assert "another --port" in findings[0].advice
    assert "another --console-port" in findings[1].advice
