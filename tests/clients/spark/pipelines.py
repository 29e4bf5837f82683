"""`penstock pipeline …` as a user runs it, in a process of its own."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

from tests.integration.commands import COMMAND, environment, penstock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.clients.spark.rows import Seen

OWN_HEADERS = "penstock.replay."
# The driver listens on loopback alone, also for workers; everything else is what Spark comes with.
LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1"}


def pipeline(bootstrap: str, *arguments: str, conf: Mapping[str, str] | None = None) -> Any:
    """Its summary."""
    done = penstock(*_arguments(arguments, conf), bootstrap=bootstrap, extra=LOOPBACK)
    assert done.code == 0, done.err
    return done.json


def started(bootstrap: str, *arguments: str, conf: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *_arguments(arguments, conf)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(bootstrap, LOOPBACK),
    )


def _arguments(arguments: tuple[str, ...], conf: Mapping[str, str] | None) -> list[str]:
    settings = [f"--conf={name}={value}" for name, value in (conf or {}).items()]
    return ["--json", "pipeline", *arguments, *settings]


def content(rows: list[Seen]) -> list[tuple[object, ...]]:
    """What archive and replay keep of every record, in its order."""
    return [
        (
            seen.partition,
            seen.timestamp,
            seen.key,
            seen.value,
            tuple(header for header in seen.headers or () if not header[0].startswith(OWN_HEADERS)),
        )
        for seen in rows
    ]
