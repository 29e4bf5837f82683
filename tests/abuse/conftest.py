"""A broker per file of cases (one may name its own `process`), and a scene with a good client per case."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.abuse.scene import Scene
from tests.abuse.scene import scene as scene_of

from penstock.testing import BrokerProcess


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path_factory.mktemp("abused") / "data")
    running.start()
    yield running
    running.kill()  # whether it can be stopped was seen after each case


@pytest.fixture
def scene(process: BrokerProcess, tmp_path: Path) -> Iterator[Scene]:
    with scene_of(process, tmp_path) as made:
        yield made
