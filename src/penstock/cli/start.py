"""From command-line options to a broker that runs: settings, checks before anything is touched, the greeting.

The checks come first because a broker that gives up half-way has already opened its data.
"""

import errno
import logging
import os
import pwd
import resource
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.command import Session
from penstock.cli.errors import CommandError, WrongUseError

if TYPE_CHECKING:
    from penstock.config.broker import BrokerConfig

log = logging.getLogger(__name__)

_STARTED = time.monotonic()  # this module is imported when the command starts
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """`HOST:PORT`, `[::1]:9092`, or Kafka's `PLAINTEXT://HOST:PORT`; an empty host means every address."""
    scheme, separator, address = text.strip().rpartition("://")
    if separator and scheme.upper() != "PLAINTEXT":
        raise CommandError(f"the listener {text} asks for {scheme}: only PLAINTEXT is served")
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise WrongUseError(
            f"{text!r} is not an address: write HOST:PORT, such as {DEFAULT_HOST}:{DEFAULT_PORT}"
        )
    return Endpoint(host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port))


def load_config(
    flags: Mapping[str, str],
    endpoint: Endpoint | None,
    file: Path | None = None,
    defaults: Mapping[str, str] | None = None,
) -> tuple["BrokerConfig", Endpoint]:
    """The settings in force and where to listen: flag over environment over file over default."""
    from penstock.config.settings import ConfigError
    from penstock.config.sources import load_broker_config

    named = dict(flags)
    if endpoint is not None:
        if "listeners" in flags:
            raise WrongUseError(f"--set listeners={flags['listeners']} and {endpoint}: give one address")
        named["listeners"] = f"PLAINTEXT://{endpoint}"
    try:
        content = file.read_bytes() if file is not None else None
    except OSError as error:
        raise CommandError(f"cannot read the configuration {file}: {error.strerror}") from error
    try:
        config = load_broker_config(flags=named, environment=os.environ, file=content, defaults=defaults)
    except ConfigError as error:
        raise CommandError(f"{error}; docs/configuration.md lists every setting") from error
    if endpoint is None:
        config, endpoint = _listening(config)
    if len(config.log_dirs) != 1:
        raise CommandError(f"log.dirs names {len(config.log_dirs)} directories: give one data dir per broker")
    return config, endpoint


def _listening(config: "BrokerConfig") -> tuple["BrokerConfig", Endpoint]:
    """Where to listen; a broker that was told nothing describes the address it takes, which is not Kafka's default."""
    if "listeners" not in config.given:
        endpoint = Endpoint(DEFAULT_HOST, DEFAULT_PORT)
        return config.resolve({**config.given, "listeners": f"PLAINTEXT://{endpoint}"}), endpoint
    if len(config.listeners) != 1:
        raise CommandError(f"listeners names {len(config.listeners)} addresses: give one")
    return config, parse_endpoint(config.listeners[0])


def serve(config: "BrokerConfig", endpoint: Endpoint, session: Session) -> None:
    """Run the broker until SIGTERM or Ctrl-C."""
    from penstock.cli.greeting import Greeting
    from penstock.config.sources import unknown_variables
    from penstock.core.files import LockedError
    from penstock.server import logs
    from penstock.server.run import run

    level = "debug" if session.debug else str(config.values["penstock.log.level"])
    logs.set_up(str(config.values["penstock.log.format"]), level)
    for name in unknown_variables(os.environ):
        log.warning("%s in the environment is no setting, and has no effect", name)
    data_dir = Path(config.log_dirs[0])
    check_port(endpoint, "--port")
    check_port(Endpoint(endpoint.host, max(0, config.penstock_console_port)), "--console-port")
    first_start = prepare_data_dir(data_dir)
    raise_file_limit()
    greeting = Greeting(session, endpoint, data_dir, _STARTED, first_start=first_start)
    try:
        run(config, endpoint.host, endpoint.port, greeting.ready)
    except LockedError as error:
        raise CommandError(
            f"{data_dir} is in use by a running broker: stop that one, or give this one another --data-dir"
        ) from error
    except OSError as error:
        raise CommandError(
            f"the broker stopped: {error.strerror or error}; try again with --debug"
        ) from error
    greeting.stopped()


def check_port(endpoint: Endpoint, option: str) -> None:
    """Refuse a port that is taken before the data is touched, as the start would have to be undone otherwise."""
    if endpoint.port == 0:
        return
    try:
        family = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((endpoint.host, endpoint.port))
    except OSError as error:
        raise _cannot_listen(endpoint, option, error) from error


def _cannot_listen(endpoint: Endpoint, option: str, error: OSError) -> CommandError:
    host, port = endpoint.host, endpoint.port
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
        f"cannot listen on {endpoint}: {error.strerror or error}; choose another with {option}"
    )


def prepare_data_dir(data_dir: Path) -> bool:
    """Make the directory, see that it can be written and is a broker's; True when it is new."""
    from penstock.core.files import OsFiles
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


def permission_advice(path: Path) -> str:
    """What makes a directory writable to us: only its owner may change its permissions."""
    owner = path.stat().st_uid
    if owner == os.geteuid():
        return f"give yourself write permission (chmod u+rwx {path})"
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = str(owner)
    return (
        f"it belongs to {name}: run the broker as {name}, or make it yours (sudo chown -R $(id -un) {path})"
    )


def raise_file_limit() -> tuple[int, int]:
    """Each connection and each open segment is a descriptor: take as many as the system lets us have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            print(f"penstock: the limit of {soft} open files could not be raised", file=sys.stderr)
    return soft, hard
