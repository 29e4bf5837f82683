"""Apache Hadoop's file system: a NameNode and a DataNode, each a process of its own, as a cluster runs them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from tools.peers import http, maven
from tools.peers.process import HOST, PeerError, PeerProcess, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping

POM = Path(__file__).with_name("hdfs-pom.xml")
HEAP = "-Xmx256m"
LOG4J = """\
log4j.rootLogger=INFO,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c: %m%n
"""


def install() -> Path:
    """The directory with the servers' jars; downloads them when they are not there yet."""
    return maven.jars(POM, f"hdfs-{maven.pinned(POM, 'hadoop.version')}")


def _write_site(file: Path, settings: Mapping[str, object]) -> None:
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>\n"
        for name, value in settings.items()
    )
    file.write_text(f"<configuration>\n{properties}</configuration>\n")


class _HadoopProcess(PeerProcess):
    main_class: str

    def __init__(self, work_dir: Path) -> None:
        super().__init__(work_dir)

    def java(self, *arguments: str) -> list[str]:
        classpath = f"{self.work_dir / 'conf'}:{install()}/*"
        return [maven.java(), HEAP, "-cp", classpath, self.main_class, *arguments]

    def command(self) -> list[str]:
        return self.java()


class NameNode(_HadoopProcess):
    name = "namenode"
    main_class = "org.apache.hadoop.hdfs.server.namenode.NameNode"

    def __init__(self, work_dir: Path) -> None:
        super().__init__(work_dir)
        self.port, self.http_port = free_ports(2)

    def prepare(self) -> None:
        conf = self.work_dir / "conf"
        # The pages of the web interface are not on Maven; the servers insist on a place for them.
        for pages in ("hdfs", "datanode"):
            (conf / "webapps" / pages).mkdir(parents=True)
        (conf / "log4j.properties").write_text(LOG4J)
        _write_site(conf / "core-site.xml", {"fs.defaultFS": f"hdfs://{HOST}:{self.port}"})
        # Nothing listens anywhere but here; 0 is a free port.
        anywhere = dict.fromkeys(
            ("dfs.datanode.address", "dfs.datanode.http.address", "dfs.datanode.ipc.address"), f"{HOST}:0"
        )
        settings = {
            "dfs.namenode.rpc-address": f"{HOST}:{self.port}",
            "dfs.namenode.http-address": f"{HOST}:{self.http_port}",
            "dfs.namenode.name.dir": f"file://{self.work_dir}/names",
            "dfs.datanode.data.dir": f"file://{self.work_dir}/blocks",
            "dfs.replication": 1,
        }
        _write_site(conf / "hdfs-site.xml", settings | anywhere)
        done = subprocess.run(
            self.java("-format", "-nonInteractive"), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise PeerError(f"HDFS could not be formatted: {done.stderr or done.stdout}")

    def is_ready(self) -> bool:
        return self.state() is not None

    def state(self) -> dict[str, Any] | None:
        """What the NameNode says about the file system."""
        answer = http.get_json(self.http_port, "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState")
        return answer["beans"][0] if answer and answer["beans"] else None


class DataNode(_HadoopProcess):
    name = "datanode"
    main_class = "org.apache.hadoop.hdfs.server.datanode.DataNode"

    def __init__(self, name_node: NameNode) -> None:
        super().__init__(name_node.work_dir)
        self._name_node = name_node

    def prepare(self) -> None:
        """The NameNode has written the settings of both."""

    def is_ready(self) -> bool:
        """When the file system takes writes."""
        state = self._name_node.state()
        return state is not None and state["NumLiveDataNodes"] == 1 and state["FSState"] == "Operational"


class Hdfs:
    """`with Hdfs() as hdfs: hdfs.uri, hdfs.files("/lake")`."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="hdfs-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            self.name_node = stack.enter_context(NameNode(folder))
            stack.enter_context(DataNode(self.name_node))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def uri(self) -> str:
        return f"hdfs://{HOST}:{self.name_node.port}"

    def files(self, folder: str) -> list[str]:
        """Every file below, by its path; through the NameNode's own HTTP interface."""
        answer = http.get_json(self.name_node.http_port, f"/webhdfs/v1{quote(folder)}?op=LISTSTATUS")
        found = []
        for status in answer["FileStatuses"]["FileStatus"] if answer else ():
            path = f"{folder}/{status['pathSuffix']}"
            found += self.files(path) if status["type"] == "DIRECTORY" else [path]
        return sorted(found)
