"""From command-line options to a broker that runs: settings, checks before anything is touched, the greeting.

The checks come first because a broker that gives up half-way has already opened its data.
"""

import errno
import logging
import os
import resource
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.command import Session
from penstock.cli.errors import CommandError, WrongUseError
from penstock.core.endpoints import Address
from penstock.diagnosis.data_dir import permission_advice

if TYPE_CHECKING:
    from penstock.config.broker import BrokerConfig

logger = logging.getLogger(__name__)

_STARTED = time.monotonic()  # this module is imported when the command starts
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092
# Not every address, as in Kafka: who tries things out on a machine is not listening to its network.
_DEFAULTS = {"listeners": f"PLAINTEXT://{DEFAULT_HOST}:{DEFAULT_PORT}"}


def parse_address(text: str) -> Address:
    """`HOST:PORT`, `[::1]:9092`, or Kafka's `PLAINTEXT://HOST:PORT`; an empty host means every address.

    The short form of `listeners`, which can name several.
    """
    scheme, separator, address = text.strip().rpartition("://")
    if separator and scheme.upper() != "PLAINTEXT":
        raise CommandError(f"the listener {text} asks for {scheme}: only PLAINTEXT is served")
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise WrongUseError(
            f"{text!r} is not an address: write HOST:PORT, such as {DEFAULT_HOST}:{DEFAULT_PORT}"
        )
    return Address(host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port))


def load_config(
    flags: Mapping[str, str],
    address: Address | None,
    file: Path | None = None,
    defaults: Mapping[str, str] | None = None,
) -> "BrokerConfig":
    """The settings in force: flag over environment over file over default. `address` is short for one listener."""
    from penstock.config.settings import ConfigError
    from penstock.config.sources import load_broker_config

    named = dict(flags)
    if address is not None:
        if "listeners" in flags:
            raise WrongUseError(f"--set listeners={flags['listeners']} and {address}: give one address")
        named["listeners"] = f"PLAINTEXT://{address}"
    try:
        content = file.read_bytes() if file is not None else None
    except OSError as error:
        raise CommandError(f"cannot read the configuration {file}: {error.strerror}") from error
    try:
        config = load_broker_config(
            flags=named, environment=os.environ, file=content, defaults={**_DEFAULTS, **(defaults or {})}
        )
    except ConfigError as error:
        raise CommandError(f"{error}; docs/configuration.md lists every setting") from error
    if len(config.log_dirs) != 1:
        raise CommandError(f"log.dirs names {len(config.log_dirs)} directories: give one data dir per broker")
    return config


def serve(config: "BrokerConfig", session: Session) -> None:
    """Run the broker until SIGTERM or Ctrl-C."""
    from penstock.cli.running.greeting import Greeting
    from penstock.config.sources import unknown_variables
    from penstock.core.files import LockedError
    from penstock.server import logs
    from penstock.server.run import run

    level = "debug" if session.debug else str(config.values["penstock.log.level"])
    logs.set_up(str(config.values["penstock.log.format"]), level)
    for name in unknown_variables(os.environ):
        logger.warning("%s in the environment is no setting, and has no effect", name)
    data_dir = Path(config.log_dirs[0])
    check_ports(config, "--port")
    check_console_port(config)
    first_start = prepare_data_dir(data_dir)
    raise_file_limit()
    greeting = Greeting(session, data_dir, _STARTED, first_start=first_start)
    try:
        run(config, greeting.ready)
    except LockedError as error:
        raise CommandError(
            f"{data_dir} is in use by a running broker: stop that one, or give this one another --data-dir"
        ) from error
    except OSError as error:
        raise CommandError(
            f"the broker stopped: {error.strerror or error}; try again with --debug"
        ) from error
    greeting.stopped()


def check_ports(config: "BrokerConfig", option: str, ports_up: int = 0) -> None:
    """All that the broker will listen on; `ports_up`: so much higher than its settings say. `option` can name one."""
    if len(config.listeners) > 1:
        option = "listeners"
    for listener in config.listeners:
        host, port = listener.address
        check_port(Address(host, port + ports_up if port else 0), option)


def check_console_port(config: "BrokerConfig") -> None:
    check_port(Address(console_host(config), max(0, config.penstock_console_port)), "--console-port")


def console_host(config: "BrokerConfig") -> str:
    return config.penstock_console_host or config.listeners[0].address.host


def check_port(address: Address, option: str) -> None:
    """Refuse a port that is taken before the data is touched, as the start would have to be undone otherwise."""
    if address.port == 0:
        return
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
    except OSError as error:
        raise _cannot_listen(address, option, error) from error


def _cannot_listen(address: Address, option: str, error: OSError) -> CommandError:
    host, port = address.host, address.port
    if error.errno == errno.EADDRINUSE:
        return CommandError(
            f"port {port} on {host} is in use: stop what runs there (`penstock doctor` says what it is), "
            f"or choose another with {option} (0 picks a free one)"
        )
    if error.errno in {errno.EACCES, errno.EPERM}:
        return CommandError(f"not allowed to listen on port {port}: choose one above 1023 with {option}")
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return CommandError(
            f"{host} is no address of this machine: use 127.0.0.1, or 0.0.0.0 for every address"
        )
    return CommandError(
        f"cannot listen on {address}: {error.strerror or error}; choose another with {option}"
    )


def prepare_data_dir(data_dir: Path) -> bool:
    """Make the directory, see that it can be written and is a broker's; True when it is new."""
    from penstock.core.os_files import OsFiles
    from penstock.storage.data_format import check_data_dir

    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise CommandError(f"{data_dir} is a file: name a directory with --data-dir") from error
    except OSError as error:
        raise CommandError(
            f"cannot make the data dir {data_dir}: {error.strerror}; choose another with --data-dir"
        ) from error
    if not os.access(data_dir, os.W_OK | os.X_OK):
        raise CommandError(
            f"cannot write to the data dir {data_dir}: {permission_advice(data_dir)}, or choose another with --data-dir"
        )
    check_data_dir(OsFiles(), data_dir)
    return not any(data_dir.iterdir())


def raise_file_limit() -> tuple[int, int]:
    """Each connection and each open segment is a descriptor: take as many as the system lets us have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            print(f"penstock: the limit of {soft} open files could not be raised", file=sys.stderr)
    return soft, hard
