"""Three brokers as one cluster, of either kind, behind one interface: for what is compared with replicas.

Both have one process beside the brokers that says who lives: Penstock a ZooKeeper, Kafka a controller of its own (so a
broker that is killed is never the controller). Sessions are equally long.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Self

from penstock.coordination.nodes import broker_path
from penstock.coordination.zookeeper.server_process import ZooKeeperProcess
from tools.peers.apache_kafka import ApacheKafka
from tools.peers.penstock import COMMAND, PenstockPeer
from tools.peers.process import HOST, BrokerProcess, PeerError, PeerProcess, free_ports

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

BROKERS = (1, 2, 3)
SESSION_MS = 6000
# ZooKeeper looks for expired sessions once a tick.
TICK_MS = 200
CONTROLLER_ID = 100
_CHROOT = "/penstock"


class ClusterPeer(ABC):
    """`with KafkaCluster(directory) as cluster: cluster.bootstrap, cluster.brokers[1].pid`."""

    brokers: dict[int, BrokerProcess]

    def __init__(self, work_dir: Path) -> None:
        self.work_dir = work_dir
        self._stack = ExitStack()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def broker_pids(self) -> list[int]:
        return [broker.pid for broker in self.brokers.values()]

    @property
    @abstractmethod
    def keeper_pid(self) -> int:
        """Of the process that says who lives."""

    @abstractmethod
    def controller(self) -> int | None:
        """The broker that is the controller as well, where one is."""

    @abstractmethod
    def notice_of(self, broker: int) -> Notice:
        """Begins to look for the moment at which the broker's session ends."""

    @abstractmethod
    def _begin(self) -> None:
        """Start what the brokers need."""

    def __enter__(self) -> Self:
        with self._stack:
            self._begin()
            for broker in self.brokers.values():
                broker.prepare()
                self._stack.callback(broker.kill)
                broker.launch()
            for broker in self.brokers.values():
                broker.wait_ready()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


class Notice(ABC):
    """When the cluster noticed that a broker is gone."""

    @abstractmethod
    def moment(self) -> float:
        """On the wall clock; waits for it."""


# -- Penstock ------------------------------------------------------------------------------------------------


class PenstockNode(PenstockPeer):
    def __init__(self, number: int, zookeeper: str, work_dir: Path) -> None:
        super().__init__({"zookeeper.session.timeout.ms": SESSION_MS}, work_dir=work_dir)
        self._number = number
        self._zookeeper = zookeeper

    def command(self) -> list[str]:
        command = [str(COMMAND), "broker", "--id", str(self._number), "--listener", f"{HOST}:{self.port}"]
        command += ["--zookeeper", self._zookeeper, "--data-dir", str(self.data_dir)]
        command += ["--console-port", str(self.console_port)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command


class PenstockCluster(ClusterPeer):
    def __init__(self, work_dir: Path) -> None:
        super().__init__(work_dir)
        self._zookeeper = ZooKeeperProcess(work_dir / "zookeeper", tick_ms=TICK_MS)

    def _begin(self) -> None:
        self._zookeeper.start()
        self._stack.callback(self._zookeeper.kill)
        connect = self._zookeeper.connect + _CHROOT
        self.brokers = {
            number: PenstockNode(number, connect, self.work_dir / f"broker-{number}") for number in BROKERS
        }

    @property
    def keeper_pid(self) -> int:
        return self._zookeeper.pid

    def controller(self) -> int | None:
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - only where it is asked for

        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        return int(admin.list_topics(timeout=60).controller_id)

    def notice_of(self, broker: int) -> Notice:
        return _NodeGone(self._zookeeper.connect, f"{_CHROOT}/tree{broker_path(broker)}")


class _NodeGone(Notice):
    """A watch on the broker's registration in ZooKeeper."""

    def __init__(self, hosts: str, path: str) -> None:
        import threading  # noqa: PLC0415

        from kazoo.client import KazooClient  # noqa: PLC0415 - comes with the cluster extra

        self._gone = threading.Event()
        self._moment = 0.0
        self._client = KazooClient(hosts=hosts)
        self._client.start()
        if self._client.exists(path, watch=self._heard) is None:
            raise PeerError(f"no broker is registered at {path}")

    def _heard(self, _event: object) -> None:
        self._moment = time.time()
        self._gone.set()

    def moment(self) -> float:
        found = self._gone.wait(10 * SESSION_MS / 1000)
        self._client.stop()
        self._client.close()
        if not found:
            raise PeerError("ZooKeeper did not end the session of a killed broker")
        return self._moment


# -- Apache Kafka --------------------------------------------------------------------------------------------


class _KafkaNode(ApacheKafka):
    def __init__(self, number: int, controller_port: int, work_dir: Path) -> None:
        replicas = {
            "offsets.topic.replication.factor": 3,
            "transaction.state.log.replication.factor": 3,
            "transaction.state.log.min.isr": 2,
            "share.coordinator.state.topic.replication.factor": 3,
            "share.coordinator.state.topic.min.isr": 2,
            "broker.session.timeout.ms": SESSION_MS,
        }
        super().__init__(replicas, work_dir=work_dir)
        self._number = number
        self.controller_port = controller_port

    @property
    def is_controller(self) -> bool:
        return self._number == CONTROLLER_ID

    def config(self) -> dict[str, object]:
        controller = f"{HOST}:{self.controller_port}"
        listener = f"PLAINTEXT://{HOST}:{self.port}"
        own = (
            {"process.roles": "controller", "listeners": f"CONTROLLER://{controller}"}
            if self.is_controller
            else {"process.roles": "broker", "listeners": listener, "advertised.listeners": listener}
        )
        return {
            "node.id": self._number,
            "controller.quorum.voters": f"{CONTROLLER_ID}@{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.data_dir,
            **own,
            **self.extra_config,
        }


class KafkaCluster(ClusterPeer):
    def __init__(self, work_dir: Path) -> None:
        super().__init__(work_dir)
        (port,) = free_ports(1)
        self._controller = _KafkaNode(CONTROLLER_ID, port, work_dir / "controller")
        self._controller.port = port  # what is asked whether it is ready
        self.brokers = {number: _KafkaNode(number, port, work_dir / f"broker-{number}") for number in BROKERS}

    def _begin(self) -> None:
        self._controller.prepare()
        self._stack.callback(self._controller.kill)
        self._controller.start()

    @property
    def keeper_pid(self) -> int:
        return self._controller.pid

    def controller(self) -> int | None:
        return None

    def notice_of(self, broker: int) -> Notice:
        return _Fenced(self._controller, broker)


class _Fenced(Notice):
    """The line in the controller's log that says so, which has the time in front."""

    def __init__(self, controller: PeerProcess, broker: int) -> None:
        self._log = controller.log_file
        self._from = self._log.stat().st_size
        self._line = re.compile(rf"^\[([^\]]+)\].*[Ff]encing broker {broker}\b", re.MULTILINE)

    def moment(self) -> float:
        deadline = time.monotonic() + 10 * SESSION_MS / 1000
        while time.monotonic() < deadline:
            with self._log.open("rb") as log:
                log.seek(self._from)
                found = self._line.search(log.read().decode(errors="replace"))
            if found is not None:
                return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()
            time.sleep(0.05)
        raise PeerError("Kafka's controller did not say that it fenced a killed broker")
