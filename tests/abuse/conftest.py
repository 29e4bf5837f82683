"""A broker per file of short cases, one for each long case, and a scene with a good client per case."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.abuse.scene import Scene
from tests.abuse.scene import scene as scene_of

from penstock.testing import BrokerProcess


@pytest.fixture(scope="module")
def shared_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with _running(tmp_path_factory.mktemp("abused")) as process:
        yield process


@pytest.fixture
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    """What a long case leaves behind (memory, files, topics) is not to be the next one's trouble."""
    if request.node.get_closest_marker("soak") is None:
        yield request.getfixturevalue("shared_process")
    else:
        with _running(tmp_path / "abused") as process:
            yield process


@contextmanager
def _running(directory: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(directory / "data")
    process.start()
    yield process
    process.kill()  # whether it can be stopped was seen after each case


@pytest.fixture
def scene(process: BrokerProcess, tmp_path: Path) -> Iterator[Scene]:
    with scene_of(process, tmp_path) as made:
        yield made
