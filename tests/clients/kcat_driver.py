"""kcat, the command line around librdkafka: it produces and consumes, and has no admin side."""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, ClassVar

from tests.integration.scenarios.records import Consumed, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONSUME_TIMEOUT_S = 60
# Longer values come from a file: random bytes would hold the characters that part lines.
LINE_BYTES_MAX = 1000
# Between key and value, and between messages, where many are sent by one call; in none of the records.
KEY_END, MESSAGE_END = "\x1f", "\x1e"
# Lengths before contents, so that contents may be anything: offset, time, key, value, headers.
FORMAT = "%o %T %K %S\\n%k%s%h\\n"
ERROR_CODES = {"Broker: Message size too large": 10}
NO_ADMIN = "kcat has no admin side"


class KcatFailedError(Exception):
    """kcat ended with an error that no scenario expects."""


class KcatDriver:
    name: ClassVar[str] = "kcat"
    gaps: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            (
                "create_topic",
                "delete_topic",
                "describe_topic",
                "create_partitions",
                "describe_config",
                "describe_default",
                "alter_config",
                "incremental_alter_config",
                "delete_records",
                "describe_cluster",
                "describe_log_dirs",
                "describe_producers",
                "admin_topics",
                "admin_partitions",
                "admin_configs",
                "admin_configs_replaced",
                "admin_incremental_configs",
                "admin_records_and_offsets",
                "admin_max_timestamp",
                "admin_cluster",
                "admin_log_dirs",
                "admin_producers",
            ),
            NO_ADMIN,
        ),
        "lookup_by_timestamp": "kcat cannot set a record's timestamp",
        "append_time": "kcat cannot set a record's timestamp",
        "idempotent_retries": "kcat ends when the only connection it has is cut",
    }

    def close(self) -> None:
        """Each operation was a process of its own."""

    def run(self, op: str, bootstrap: str, args: dict[str, Any]) -> Any:
        return getattr(self, op)(bootstrap, **args)

    def produce(
        self,
        bootstrap: str,
        *,
        topic: str,
        partition: int,
        records: Sequence[Record],
        compression: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        batch_records: int = 10_000,
        max_request_bytes: int = 1_000_000,
    ) -> Any:
        settings = {
            "compression.codec": compression,
            "acks": acks,
            "enable.idempotence": str(idempotent).lower(),
            "batch.num.messages": batch_records,
            "message.max.bytes": max_request_bytes,
        }
        base = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", str(partition)]
        for name, value in settings.items():
            base += ["-X", f"{name}={value}"]
        for together, group in itertools.groupby(records, _is_simple):
            batch = list(group)
            for some in [batch] if together else [[record] for record in batch]:
                failure = self._send(base, some)
                if failure is not None:
                    return {"error": failure}
        return {"acknowledged": len(records)}

    def _send(self, base: list[str], records: list[Record]) -> int | None:
        """Several records in one call share batches; what needs options of its own comes alone."""
        first = records[0]
        options: list[str | bytes] = ["-Z"] if first.value is None else []
        for name, value in first.headers:
            options += ["-H", name if value is None else name.encode() + b"=" + value]
        if len(first.value or b"") > LINE_BYTES_MAX:
            return self._send_file(base, options, first)
        lines = [record.value or b"" for record in records]
        if first.key is not None:
            options += ["-K", KEY_END]
            lines = [
                (record.key or b"") + KEY_END.encode() + line
                for record, line in zip(records, lines, strict=True)
            ]
        return _failure([*base, *options, "-D", MESSAGE_END], MESSAGE_END.encode().join(lines))

    def _send_file(self, base: list[str], options: list[str | bytes], record: Record) -> int | None:
        """A file is one message, whatever its bytes."""
        with tempfile.NamedTemporaryFile() as content:
            content.write(record.value or b"")
            content.flush()
            key: list[str | bytes] = [] if record.key is None else ["-k", record.key]
            return _failure([*base, *options, *key, content.name], b"")

    def consume(self, bootstrap: str, *, topic: str, partition: int, offset: int, count: int) -> Any:
        command = ["kcat", "-C", "-q", "-b", bootstrap, "-t", topic, "-p", str(partition)]
        command += [
            "-o",
            str(offset),
            "-c",
            str(count),
            "-f",
            FORMAT,
            "-X",
            "fetch.message.max.bytes=4194304",
        ]
        done = subprocess.run(command, capture_output=True, check=False, timeout=CONSUME_TIMEOUT_S)
        if done.returncode:
            raise KcatFailedError(done.stderr.decode())
        return _parse(done.stdout)

    def offset_for_time(self, bootstrap: str, *, topic: str, partition: int, timestamp: int) -> int | None:
        return self._query(bootstrap, topic, partition, timestamp)

    def list_offsets(self, bootstrap: str, *, topic: str, partition: int, at: str | int) -> Any:
        where = {"latest": -1, "earliest": -2}.get(str(at), at)
        return {"offset": self._query(bootstrap, topic, partition, int(where))}

    def _query(self, bootstrap: str, topic: str, partition: int, timestamp: int) -> int | None:
        place = f"{topic}:{partition}:{timestamp}"
        done = subprocess.run(
            ["kcat", "-Q", "-b", bootstrap, "-t", place], capture_output=True, check=True, text=True
        )
        found = int(re.findall(r"offset (-?\d+)", done.stdout)[0])
        return None if found < 0 else found

    def list_topics(self, bootstrap: str) -> list[str]:
        done = subprocess.run(["kcat", "-L", "-b", bootstrap], capture_output=True, check=True, text=True)
        return re.findall(r'^  topic "([^"]+)"', done.stdout, re.MULTILINE)


def _is_simple(record: Record) -> bool:
    return (
        bool(record.key and record.value)
        and not record.headers
        and len(record.value or b"") <= LINE_BYTES_MAX
    )


def _failure(command: Sequence[str | bytes], data: bytes) -> int | None:
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    if done.returncode == 0:
        return None
    text = done.stderr.decode(errors="replace")
    for words, code in ERROR_CODES.items():
        if words in text:
            return code
    raise KcatFailedError(text)


def _parse(output: bytes) -> list[Consumed]:
    found = []
    position = 0
    while position < len(output):
        line_end = output.index(b"\n", position)
        offset, timestamp, key_bytes, value_bytes = map(int, output[position:line_end].split())
        key, position = _take(output, line_end + 1, key_bytes)
        value, position = _take(output, position, value_bytes)
        end = output.index(b"\n", position)
        found.append(Consumed(offset, value, key, _headers(output[position:end].decode()), timestamp))
        position = end + 1
    return found


def _take(output: bytes, position: int, size: int) -> tuple[bytes | None, int]:
    return (None, position) if size < 0 else (output[position : position + size], position + size)


def _headers(text: str) -> tuple[tuple[str, bytes | None], ...]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    return tuple((name, None if value == "NULL" else value.encode()) for name, _, value in pairs)
