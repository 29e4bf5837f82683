"""What `up` and `broker` say when they serve and when they have stopped.

The first line on a pipe is a contract: `penstock listens on HOST:PORT`. Whoever starts a broker waits for it.
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.cli.command import DEFAULT_BOOTSTRAP, Session
from penstock.cli.output import print_json
from penstock.cli.running.streams import harmless_output
from penstock.core.text import count_text, size_text
from penstock.diagnosis.data_dir import is_clean, on_disk

if TYPE_CHECKING:
    from penstock.server.broker import Broker

# What to type on this machine when the broker listens on every address.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


class Greeting:
    def __init__(self, session: Session, data_dir: Path, started: float, *, first_start: bool) -> None:
        self._session = session
        self._data_dir = data_dir
        self._started = started
        self._first_start = first_start

    def ready(self, broker: "Broker") -> None:
        facts = self._facts(broker)
        with harmless_output():
            if self._session.json:
                print_json(facts)
            elif sys.stdout.isatty():
                self._for_people(facts)
            else:
                print(f"penstock listens on {facts['listens']}")
                for name, address in _several(facts["listeners"]).items():
                    print(f"listener {name} on {address}")
                if facts["console_port"] is not None:
                    print(f"metrics and health on http://{facts['host']}:{facts['console_port']}")
                print(f"version {__version__}, node {facts['node_id']}, data in {self._data_dir}")
                print(f"{facts['state']}; ready after {facts['start_ms']} ms", flush=True)

    def _facts(self, broker: "Broker") -> dict[str, Any]:
        partitions = sum(1 for _ in broker.table.partitions())
        host, port = broker.listeners.all[0].address
        return {
            "event": "ready",
            "listens": f"{host}:{port}",
            "host": host,
            "port": port,
            "listeners": {
                listener.name: f"{listener.address.host}:{listener.address.port}"
                for listener in broker.listeners.all
            },
            "console_port": broker.console_port if broker.console_port >= 0 else None,
            "node_id": broker.services.node.id,
            "version": __version__,
            "data_dir": str(self._data_dir),
            "topics": len(broker.table.all_topics()),
            "partitions": partitions,
            "clean": self._first_start or broker.data_dir.was_clean,
            "recovered_bytes": broker.hosting.recovered_bytes,
            "shortened": broker.hosting.shortened,
            "state": self._state(partitions, broker),
            "start_ms": round((time.monotonic() - self._started) * 1000),
        }

    def _state(self, partitions: int, broker: "Broker") -> str:
        if self._first_start:
            return "a new data dir"
        found = count_text(partitions, "partition")
        hosting = broker.hosting
        if hosting.shortened:
            return f"{found}, {hosting.shortened} of them LOST RECORDS THAT WERE DURABLE: see the log"
        if broker.data_dir.was_clean:
            return f"{found}, nothing to recover"
        return f"{found}, recovered after an unclean stop ({size_text(hosting.recovered_bytes)} checked)"

    def _for_people(self, facts: dict[str, Any]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console(highlight=False)
        lines = Table.grid(padding=(0, 2))
        lines.add_row("Kafka clients", Text(f"bootstrap.servers={facts['listens']}", style="bold"))
        for name, address in _several(facts["listeners"]).items():
            lines.add_row(f"listener {name}", Text(address))
        if facts["console_port"] is not None:
            console_url = f"http://{facts['host']}:{facts['console_port']}"
            lines.add_row("monitoring", Text(f"{console_url}/metrics, {console_url}/healthz"))
        lines.add_row("data", Text(f"{self._data_dir}  ({facts['state']})"))
        reached = f"{_LOOPBACK.get(facts['host'], facts['host'])}:{facts['port']}"
        named = "" if reached == DEFAULT_BOOTSTRAP else f" --bootstrap {reached}"
        lines.add_row("try", Text(f"echo hello | penstock produce greetings{named}", style="cyan"))
        lines.add_row("then", Text(f"penstock consume greetings --from-beginning{named}", style="cyan"))
        lines.add_row("stop", Text("Ctrl-C"))
        console.print()
        console.print(
            Text.assemble(("Penstock", "bold blue"), f" {__version__} is ready after {facts['start_ms']} ms")
        )
        console.print()
        console.print(lines)
        console.print()

    def stopped(self) -> bool:
        """Say how it ended; False when a log could not be closed as it should."""
        clean = is_clean(self._data_dir)
        with harmless_output():
            if self._session.json:
                print_json({"event": "stopped", "clean": clean})
            else:
                print(f"penstock has stopped; {on_disk(clean)}", flush=True)
        return clean


def _several(listeners: dict[str, str]) -> dict[str, str]:
    """One alone has been told."""
    return listeners if len(listeners) > 1 else {}
