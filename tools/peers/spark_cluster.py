"""A Spark standalone cluster of the installed PySpark: a master and workers, each a process of its own."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import pyspark

from tools.peers import http, maven
from tools.peers.process import HOST, PeerProcess, free_ports

HOME = Path(pyspark.__file__).parent
WORKERS = 2


class _SparkProcess(PeerProcess):
    def __init__(self, work_dir: Path, name: str) -> None:
        self.name = name
        super().__init__(work_dir)
        self.port, self.http_port = free_ports(2)

    def prepare(self) -> None:
        maven.java()

    def environment(self) -> dict[str, str]:
        return {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m"}

    def run(self, main_class: str, *arguments: str) -> list[str]:
        ports = ("--host", HOST, "--port", str(self.port), "--webui-port", str(self.http_port))
        return [str(HOME / "bin" / "spark-class"), main_class, *ports, *arguments]


class Master(_SparkProcess):
    def command(self) -> list[str]:
        return self.run("org.apache.spark.deploy.master.Master")

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def state(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = http.get_json(self.http_port, "/json/")
        return found

    def is_ready(self) -> bool:
        return self.state() is not None

    def workers(self) -> set[int]:
        """The ports of those that live."""
        state = self.state() or {"workers": []}
        return {int(worker["port"]) for worker in state["workers"] if worker["state"] == "ALIVE"}


class Worker(_SparkProcess):
    def __init__(self, master: Master, number: int) -> None:
        super().__init__(master.work_dir / f"worker-{number}", f"worker-{number}")
        self._master = master

    def command(self) -> list[str]:
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.work_dir))
        return self.run("org.apache.spark.deploy.worker.Worker", *size, self._master.url)

    def is_ready(self) -> bool:
        return self.port in self._master.workers()

    def executors(self) -> list[int]:
        """Their process ids."""
        # Each thread has the children that it has started; threads come and go while we look.
        found = []
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                found += [int(pid) for pid in (task / "children").read_text().split()]
        return found


class SparkCluster:
    """`with SparkCluster() as cluster: cluster.url, cluster.workers[0].executors()`."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.workers: list[Worker] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="spark-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            self.master = stack.enter_context(Master(folder, "master"))
            self.workers = [stack.enter_context(Worker(self.master, number)) for number in range(WORKERS)]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        return self.master.url
