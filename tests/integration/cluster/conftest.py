from collections.abc import Iterator

import pytest
from tests.integration.cluster.harness import SETTINGS, Cluster

from penstock.testing import ClusterProcesses, cluster


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """One cluster of three for all: each test begins with all of it up, and a topic of its own."""
    with cluster(3, SETTINGS, directory=tmp_path_factory.mktemp("cluster")) as processes:
        yield processes


@pytest.fixture
def three(running: ClusterProcesses) -> Iterator[Cluster]:
    running.start()
    harness = Cluster(running)
    yield harness
    running.start()
    harness.delete(harness.topic)
