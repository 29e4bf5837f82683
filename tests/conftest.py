"""What holds for every test: hypothesis sets no time limits, since machines differ and correctness does not.

And what many share: a real ZooKeeper, one per test process, started by the first test that asks for it.

And how tests are dealt out to workers. A file that starts brokers stays with one worker, so that they start once; all
that needs Spark stays with one Spark, and what shares a cluster with one cluster. Those come first: they wait more than
they compute, and the longest must not be left for the end. The rest goes out in small portions, which fill the gaps.

And that the garbage collector leaves alone what was there before the first test: ten thousand tests and all modules
they need, which it would look through again and again.

And that `caplog` holds what Penstock says: threads of an earlier test's clients speak at any time.

And that Ctrl-C works in what tests start: a shell makes what it runs in the background ignore it, and children do too.
"""

import gc
import logging
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from penstock.coordination.zookeeper.server_process import ZooKeeperStartError
from penstock.coordination.zookeeper.server_process import zookeeper as running_zookeeper

settings.register_profile("no time limits", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=15)  # for `make quick`
settings.load_profile("no time limits")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_PORTION_TESTS = 20
_INTEGRATION = Path(__file__).parent / "integration"
_PROCESSES = {_INTEGRATION, Path(__file__).parent / "abuse"}
_SPARK = _INTEGRATION / "spark"
_SHARED = (_SPARK, _INTEGRATION / "cluster")


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


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.filtering(logging.Filter("penstock")):
        yield caplog


class Dealer(LoadScopeScheduling):
    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._scopes: dict[str, str] = {}
        self._seen: Counter[str] = Counter()

    def _split_scope(self, nodeid: str) -> str:
        """What goes to one worker, as a name; asked for each test in turn, and again when it is done."""
        if nodeid not in self._scopes:
            self._scopes[nodeid] = self._portion(nodeid.split("::", 1)[0])
        return self._scopes[nodeid]

    def _portion(self, file: str) -> str:
        path = self.config.rootpath / file
        for shared in _SHARED:
            if shared in path.parents:
                return shared.name
        if not _PROCESSES.isdisjoint(path.parents):
            return file
        self._seen[file] += 1
        return f"{file} {self._seen[file] // _PORTION_TESTS}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Dealer:
    config.option.loadscopereorder = False  # they are in order already
    return Dealer(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After they were shuffled: what shares something first, then what starts processes; otherwise the order stays."""
    items.sort(
        key=lambda item: (
            [shared not in item.path.parents for shared in _SHARED],
            _PROCESSES.isdisjoint(item.path.parents),
        )
    )


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
