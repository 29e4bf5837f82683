"""Penstock itself as a peer: the installed command, as a user would start it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

from tools.peers.process import HOST, BrokerProcess, PeerError, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
COMMAND = ROOT / ".venv" / "bin" / "penstock"
PROJECT = ROOT / "pyproject.toml"


class PenstockPeer(BrokerProcess):
    """`with PenstockPeer(settings={"penstock.ack.after": "written"}) as penstock: penstock.bootstrap`."""

    name = "penstock"

    def __init__(self, settings: Mapping[str, object] | None = None, *, work_dir: Path | None = None) -> None:
        super().__init__(work_dir)
        self.settings = dict(settings or {})
        self.port, self.console_port = free_ports(2)

    @classmethod
    def installed_version(cls) -> str:
        return str(tomllib.loads(PROJECT.read_text())["project"]["version"])

    def prepare(self) -> None:
        if not COMMAND.exists():
            raise PeerError(f"no {COMMAND.name} at {COMMAND}: run `make setup` first")

    def command(self) -> list[str]:
        command = [str(COMMAND), "up", "--data-dir", str(self.data_dir), "--host", HOST]
        command += ["--port", str(self.port), "--console-port", str(self.console_port)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def metrics(self) -> str:
        """The text of the Prometheus endpoint."""
        with urlopen(f"http://{HOST}:{self.console_port}/metrics", timeout=30) as answer:
            return str(answer.read().decode())
