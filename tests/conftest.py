"""What holds for every test: hypothesis sets no time limits, since machines differ and correctness does not.

And what many share: a real ZooKeeper, one per test process, started by the first test that asks for it.
"""

import pytest
from hypothesis import settings

from penstock.testing.zookeeper import ZooKeeperStartError
from penstock.testing.zookeeper import zookeeper as running_zookeeper

settings.register_profile("no time limits", deadline=None)
settings.load_profile("no time limits")


@pytest.fixture(scope="session")
def zookeeper():
    problem = ""
    running = running_zookeeper()
    try:
        server = running.__enter__()
    except ZooKeeperStartError as error:
        problem = str(error)
    if problem:
        pytest.fail(problem, pytrace=False)
    yield server
    running.__exit__(None, None, None)
