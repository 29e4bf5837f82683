"""A real cluster as child processes: one ZooKeeper, and brokers on it that can be killed, stopped and started again."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from penstock.client.raw.link import Link
from penstock.client.raw.options import RawOptions
from penstock.coordination.zookeeper.server_process import ZooKeeperProcess
from penstock.testing.process import BrokerProcess
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.metadata import MetadataRequest

# With ticks of 200 ms it may be as short as 400 ms; a busy machine must not expire sessions of the living.
SESSION_MS = 6000
# No test waits three seconds for other members of a group, as none does with `penstock up`.
_DEFAULTS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "group.initial.rebalance.delay.ms": "0",
}
_CHROOT = "/penstock"
_KNOWN_SECONDS = 120.0
_LOOK_SECONDS = 0.02
_METADATA_VERSION = 9


class ClusterProcesses:
    """Brokers numbered from 1 on."""

    def __init__(
        self,
        directory: Path,
        zookeeper: ZooKeeperProcess,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        racks: Sequence[str] = (),
    ) -> None:
        """Brokers stand in `racks`, one after the other, where there are any."""
        self.zookeeper = zookeeper
        self._directory = directory
        self._racks = racks
        self._connect = zookeeper.connect + _CHROOT
        self._settings = {**_DEFAULTS, **(settings or {})}
        self.brokers = [self.make(number) for number in range(1, brokers + 1)]

    def make(
        self, number: int, settings: Mapping[str, str] | None = None, *, folder: str = ""
    ) -> BrokerProcess:
        """A broker of this cluster, not started and not one of `brokers`."""
        rack = {"broker.rack": self._racks[(number - 1) % len(self._racks)]} if self._racks else {}
        return BrokerProcess(
            self._directory / (folder or f"broker-{number}"),
            {**self._settings, **rack, **(settings or {})},
            zookeeper=self._connect,
            node_id=number,
        )

    def join(self, settings: Mapping[str, str] | None = None) -> BrokerProcess:
        """One more broker, started."""
        newcomer = self.make(len(self.brokers) + 1, settings)
        self.brokers.append(newcomer)
        newcomer.start()
        return newcomer

    @property
    def bootstrap(self) -> str:
        """All brokers, dead or alive."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def broker(self, number: int) -> BrokerProcess:
        return self.brokers[number - 1]

    def start(self) -> None:
        """Those that do not run, all at once."""
        _at_once([broker.start for broker in self.brokers if not broker.is_running])

    def until_known(self) -> None:
        """Until each of those that run knows all of them: the controller may be the last to hear of one, and would
        place replicas on those it knows."""
        running = [broker for broker in self.brokers if broker.is_running]
        too_late = time.monotonic() + _KNOWN_SECONDS
        while not all(_brokers_known_to(broker) == len(running) for broker in running):
            if time.monotonic() > too_late:
                raise TimeoutError(f"not all {len(running)} brokers know each other")
            time.sleep(_LOOK_SECONDS)

    def kill(self) -> None:
        """kill -9 of all, at once."""
        _at_once([broker.kill for broker in self.brokers])

    def stop(self) -> None:
        """One after the other, so that none waits for the last one to take over."""
        for broker in self.brokers:
            broker.stop()


def _brokers_known_to(broker: BrokerProcess) -> int:
    link = Link((broker.host, broker.port), RawOptions())
    try:
        answer = link.call(ApiKey.METADATA, _METADATA_VERSION, MetadataRequest(topics=[]))
        return len(answer.brokers)
    finally:
        link.close()


def _at_once(actions: Sequence[Callable[[], None]]) -> None:
    if actions:
        with ThreadPoolExecutor(len(actions)) as threads:
            for done in [threads.submit(action) for action in actions]:
                done.result()


@contextmanager
def cluster(
    brokers: int = 3,
    settings: Mapping[str, str] | None = None,
    *,
    directory: Path | None = None,
    racks: Sequence[str] = (),
) -> Iterator[ClusterProcesses]:
    """A running cluster with its own ZooKeeper; in a temporary directory unless one is given."""
    with tempfile.TemporaryDirectory(prefix="penstock-cluster-") as temporary:
        place = directory or Path(temporary)
        zookeeper = ZooKeeperProcess(place / "zookeeper", tick_ms=200, durable=False)
        zookeeper.start()
        processes = ClusterProcesses(place, zookeeper, brokers, settings, racks)
        try:
            processes.start()
            processes.until_known()
            yield processes
        finally:
            try:
                processes.kill()
            finally:
                zookeeper.kill()
