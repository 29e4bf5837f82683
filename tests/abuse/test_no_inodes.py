"""A real disk without inodes: new topics are refused, and everything that is there is served."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.abuse.scene import Bounds, Scene, unhurt
from tests.integration.overload.small_disk import MountedDisk, may_mount
from tests.integration.raw import RawClient, create_topic, make_batch, produced, wait_until

from penstock.core.error_codes import ErrorCode as E
from penstock.testing import BrokerProcess

INODES = 400


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[MountedDisk]:
    mount = tmp_path / "disk"
    mount.mkdir()
    if not may_mount(mount):
        pytest.skip("needs root on Linux and the right to mount a tmpfs (nr_inodes=)")
    made = MountedDisk(mount, INODES)
    yield made
    made.remove()


@pytest.fixture
def process(disk: MountedDisk) -> Iterator[BrokerProcess]:
    broker_process = BrokerProcess(disk.directory / "data")
    broker_process.start()
    yield broker_process
    disk.free()
    broker_process.kill()


@pytest.mark.soak
def test_topics_are_refused_until_there_are_inodes_again(scene: Scene, disk: MountedDisk) -> None:
    with RawClient(scene.port) as client:
        assert create_topic(client, "early").error_code == 0
        too_many = create_topic(client, "too-many", INODES)
        assert too_many.error_code == E.KAFKA_STORAGE_ERROR
        assert "has no inodes left" in too_many.error_message
        disk.take_inodes()
        for number in range(20):
            refused = create_topic(client, f"late-{number}")
            assert refused.error_code == E.KAFKA_STORAGE_ERROR
            assert "has no inodes left" in refused.error_message
        answer = produced(client, "early", make_batch([b"written"]))
        assert answer.error_code == 0, "what has its files is written on"
        scene.note("early", 0, answer.base_offset, b"written")
        scene.wait_for_rounds(20)
        disk.free()
        wait_until(
            lambda: create_topic(client, "late").error_code in (0, E.TOPIC_ALREADY_EXISTS), "there is room"
        )
        wait_until(lambda: produced(client, "late", make_batch([b"x"])).error_code == 0, "it takes writes")
    unhurt(scene, Bounds())
