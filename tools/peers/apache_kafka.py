"""Apache Kafka as a peer: one combined KRaft node, 1 GB heap, its own defaults.

The jars come from Maven by package name (`kafka-pom.xml`) and are kept in the user's cache, one directory
per version, so only the first use needs the network.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tools.peers import maven
from tools.peers.process import HOST, BrokerProcess, PeerError, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping

POM = Path(__file__).with_name("kafka-pom.xml")
CLUSTER_ID = "UGVuc3RvY2tQZWVyS2Fma2"  # 16 bytes, URL-safe base64 without padding
# What bin/kafka-server-start.sh of the distribution passes to the JVM.
JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
TOOL_OPTIONS = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF")
# On one node the internal topics cannot have their three replicas.
ONE_NODE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
LOG4J = """\
Configuration:
  status: error
  Appenders:
    Console:
      name: out
      PatternLayout:
        pattern: "[%d] %p %m (%c)%n"
  Loggers:
    Root:
      level: INFO
      AppenderRef:
        ref: out
"""


def pinned_version() -> str:
    """The server version that `kafka-pom.xml` names."""
    return maven.pinned(POM, "kafka.version")


def install() -> Path:
    """The directory with the server's jars; downloads them when they are not there yet."""
    return maven.jars(POM, f"apache-kafka-{pinned_version()}")


def run_tool(main_class: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One of the distribution's command-line tools, as its bin/*.sh would run it."""
    command = [maven.java(), *TOOL_OPTIONS, "-cp", f"{install()}/*", main_class, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class ApacheKafka(BrokerProcess):
    """`with ApacheKafka(extra_config={"num.io.threads": 4}) as kafka: kafka.bootstrap, kafka.pid`."""

    name = "kafka"

    def __init__(
        self, extra_config: Mapping[str, object] | None = None, *, work_dir: Path | None = None
    ) -> None:
        super().__init__(work_dir)
        self.extra_config = dict(extra_config or {})
        self.port, self.controller_port = free_ports(2)

    @classmethod
    def installed_version(cls) -> str:
        return pinned_version()

    @property
    def config_file(self) -> Path:
        return self.work_dir / "server.properties"

    def prepare(self) -> None:
        maven.java()
        install()
        self.config_file.write_text("".join(f"{key}={value}\n" for key, value in self.config().items()))
        (self.work_dir / "log4j2.yaml").write_text(LOG4J)
        if not (self.data_dir / "meta.properties").exists():
            self._format_storage()

    def config(self) -> dict[str, object]:
        listeners = f"PLAINTEXT://{HOST}:{self.port}"
        controller = f"{HOST}:{self.controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listeners},CONTROLLER://{controller}",
            "advertised.listeners": listeners,
            "log.dirs": self.data_dir,
            **ONE_NODE,
            **self.extra_config,
        }

    def java_command(self, main_class: str, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.work_dir / 'log4j2.yaml'}"
        return [maven.java(), *JVM_OPTIONS, logging, "-cp", f"{install()}/*", main_class, *arguments]

    def _format_storage(self) -> None:
        arguments = ("format", "--cluster-id", CLUSTER_ID, "--config", str(self.config_file))
        command = self.java_command("kafka.tools.StorageTool", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerError(f"Apache Kafka could not format its storage: {done.stderr or done.stdout}")

    def command(self) -> list[str]:
        return self.java_command("kafka.Kafka", str(self.config_file))
