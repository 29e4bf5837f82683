"""`penstock broker --workers N`: one service, N brokers; a machine with many cores gets one per core."""

import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.command import Session
from penstock.cli.errors import CommandError
from penstock.cli.output import print_json
from penstock.cli.running.start import check_console_port, check_ports, console_host, prepare_data_dir
from penstock.core.endpoints import Address
from penstock.core.text import count_text
from penstock.diagnosis.data_dir import is_clean, on_disk

if TYPE_CHECKING:
    from penstock.config.broker import BrokerConfig
    from penstock.server.supervisor import Supervisor

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_PORT_MAX = 65535


@dataclass(frozen=True, slots=True)
class Crew:
    """What all workers share: the command line's settings, once read."""

    config: "BrokerConfig"
    count: int
    # As they were given; what differs from worker to worker comes behind, and wins.
    arguments: Sequence[str]

    def command(self, number: int, port: int) -> list[str]:
        config = self.config
        line = [sys.executable, "-m", "penstock.cli.main", "broker", "--json", *self.arguments]
        # Under both names: either may be among the settings that all of them were given.
        line += ["--id", str(config.node_id + number), "--set", f"broker.id={config.node_id + number}"]
        line += ["--set", f"listeners={','.join(self._listeners(number, port))}"]
        line += ["--data-dir", str(self.data_dir(number))]
        line += ["--host-label", config.penstock_host_label or socket.gethostname()]
        line += ["--console-port", "0", "--set", "penstock.console.host=127.0.0.1"]
        if config.values["advertised.listeners"]:
            told = [
                (listener.name, listener.advertised)
                for listener in config.listeners
                if listener.advertised is not None
            ]
            advertised = [f"{name}://{_shifted(address, number)}" for name, address in told]
            line += ["--set", f"advertised.listeners={','.join(advertised)}"]
        return line

    def _listeners(self, number: int, port: int) -> list[str]:
        """Each with a port of its own; that of the first may have been chosen by the system, at an earlier start."""
        first, *others = self.config.listeners
        shifted = [f"{other.name}://{_shifted(other.address, number)}" for other in others]
        return [f"{first.name}://{Address(first.address.host, port)}", *shifted]

    def data_dir(self, number: int) -> Path:
        return Path(self.config.log_dirs[0]) / f"worker-{number}"

    @property
    def host(self) -> str:
        return self.config.listeners[0].address.host

    def port(self, number: int) -> int:
        return _shifted(self.config.listeners[0].address, number).port


def run_workers(crew: Crew, session: Session) -> None:
    """Until SIGTERM or Ctrl-C."""
    import asyncio

    from penstock.server import logs
    from penstock.server.supervisor import Supervisor, WorkerPlan

    config, began = crew.config, time.monotonic()
    _check(crew)
    logs.set_up(
        str(config.values["penstock.log.format"]),
        "debug" if session.debug else str(config.values["penstock.log.level"]),
    )
    plans = [
        WorkerPlan(config.node_id + number, crew.port(number), partial(crew.command, number))
        for number in range(crew.count)
    ]
    console = (
        (console_host(config), config.penstock_console_port) if config.penstock_console_port >= 0 else None
    )

    async def run() -> None:
        supervisor = Supervisor(
            plans, prepare=_dies_with(os.getpid()), ready=partial(_greet, session, crew, began)
        )
        await supervisor.run(console)

    asyncio.run(run())
    clean = all(is_clean(crew.data_dir(number)) for number in range(crew.count))
    if session.json:
        print_json({"event": "stopped", "clean": clean})
    else:
        print(f"penstock has stopped; {on_disk(clean)}", flush=True)


def _check(crew: Crew) -> None:
    config = crew.config
    if config.zookeeper_connect is None:
        raise CommandError(
            f"{crew.count} workers are {crew.count} brokers of one cluster, which needs a ZooKeeper: name it with "
            "--zookeeper HOST:PORT/PATH (`penstock cluster up` starts one to try things with)"
        )
    _check_room(crew)
    for number in range(crew.count):
        check_ports(config, "--listener", number)
        prepare_data_dir(crew.data_dir(number))
    check_console_port(config)


def _check_room(crew: Crew) -> None:
    """Each worker takes the next port of each listener."""
    taken: dict[int, str] = {}
    for listener in crew.config.listeners:
        first = listener.address.port
        if not first:
            continue
        if first + crew.count - 1 > _PORT_MAX:
            raise CommandError(
                f"{crew.count} workers need ports from {first} on: choose a lower one with --listener"
            )
        for port in range(first, first + crew.count):
            if port in taken:
                raise CommandError(
                    f"{crew.count} workers need ports from {first} on for the listener {listener.name}, and "
                    f"{taken[port]} takes {port}: keep them further apart in listeners"
                )
            taken[port] = listener.name


def _greet(session: Session, crew: Crew, began: float, supervisor: "Supervisor") -> None:
    host = crew.host
    listens = [str(Address(host, worker.port)) for worker in supervisor.workers]
    start_ms = round((time.monotonic() - began) * 1000)
    if session.json:
        print_json(
            {
                "event": "ready",
                "listens": listens,
                "console_port": supervisor.console_port if supervisor.console_port >= 0 else None,
                "workers": [
                    {
                        "node_id": worker.plan.id,
                        "port": worker.port,
                        "pid": worker.process.pid if worker.process is not None else None,
                        "data_dir": worker.facts.get("data_dir"),
                    }
                    for worker in supervisor.workers
                ],
                "start_ms": start_ms,
            }
        )
        return
    print(f"penstock listens on {','.join(listens)}")
    if supervisor.console_port >= 0:
        print(f"metrics and health on http://{host}:{supervisor.console_port}")
    print(f"data in {crew.config.log_dirs[0]}")
    print(f"{count_text(crew.count, 'worker')}; ready after {start_ms} ms", flush=True)


def _shifted(address: Address, number: int) -> Address:
    """The same for another worker; port 0 stays, which is any that is free, or the one that is listened on."""
    return Address(address.host, address.port + number if address.port else 0)


def _dies_with(parent: int) -> Callable[[], None]:
    """A worker whose supervisor is killed stops cleanly instead of living on where nobody watches it."""
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):  # not on Linux
        return lambda: None

    def prepare() -> None:
        prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return prepare
