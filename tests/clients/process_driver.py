"""Clients in other languages: a process that takes operations as JSON lines and answers the same way."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tests.integration.scenarios.drivers.confluent import ConfluentDriver
from tests.integration.scenarios.records import Consumed, consumed_from_json, record_to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).parent


class ClientFailedError(Exception):
    """The client did something other than perform the operation or report the broker's refusal."""


class ProcessDriver:
    """Speaks to the client's runner; subclasses say how it is started."""

    name: ClassVar[str]
    gaps: ClassVar[Mapping[str, str]] = {}
    command: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE
        )

    def run(self, op: str, bootstrap: str, args: dict[str, Any]) -> Any:
        if "records" in args:
            args = {**args, "records": [record_to_json(record) for record in args["records"]]}
        request = json.dumps({"op": op, "bootstrap": bootstrap, "args": args})
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise ClientFailedError(f"the {self.name} runner ended with {self._process.wait()} in {op}")
        found = json.loads(answer)
        if "failure" in found:
            raise ClientFailedError(f"{self.name} {op}: {found['failure']}")
        return self._converted(op, found["result"])

    def _converted(self, op: str, result: Any) -> Any:
        if op == "consume" and isinstance(result, list):
            return [consumed_from_json(entry) for entry in result]
        return result

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class JavaDriver(ProcessDriver):
    name = "java"
    gaps: ClassVar[Mapping[str, str]] = {
        "alter_config": "the Java client no longer has AlterConfigs",
        "admin_configs": "the Java client no longer has AlterConfigs",
        "admin_configs_replaced": "the Java client no longer has AlterConfigs",
    }
    command = ("java", "-cp", f"{HERE}/java/target/lib/*", "penstock.clients.Runner")


class KafkaJsDriver(ProcessDriver):
    """KafkaJS consumes in groups only, so what it produced is read back with another client."""

    name = "kafkajs"
    gaps: ClassVar[Mapping[str, str]] = {
        "null_header_value": "KafkaJS refuses null header values",
        "offset_for_time": "KafkaJS answers the log's end where no record is young enough",
        "incremental_alter_config": "KafkaJS has no IncrementalAlterConfigs",
        "admin_incremental_configs": "KafkaJS has no IncrementalAlterConfigs",
        "admin_max_timestamp": "KafkaJS asks for times, first and last offsets only",
        "describe_log_dirs": "KafkaJS has no DescribeLogDirs",
        "admin_log_dirs": "KafkaJS has no DescribeLogDirs",
        "describe_producers": "KafkaJS has no DescribeProducers",
        "admin_producers": "KafkaJS has no DescribeProducers",
    }
    command = ("node", f"{HERE}/js/runner.js")

    def __init__(self) -> None:
        super().__init__()
        self._reader = ConfluentDriver()

    def run(self, op: str, bootstrap: str, args: dict[str, Any]) -> Any:
        if op == "consume":
            found: list[Consumed] = self._reader.run(op, bootstrap, args)
            return found
        return super().run(op, bootstrap, args)
