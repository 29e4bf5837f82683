"""Getting hold of a broker: a quick look whether anybody is there, and the settings every handle shares."""

import logging
import socket
from typing import Any

from penstock.client.addresses import BadAddressError, parse_addresses
from penstock.client.errors import ClientError, unreachable

# Long enough for a broker far away, short enough for a person who waits.
CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 30.0
# The broker decides what is too large; librdkafka only must not decide before it.
MESSAGE_BYTES_MAX = 100_000_000
# Without any, Python prints what nobody handles. One for all handles: a logger outlives them and keeps what it gets.
_SILENT = logging.NullHandler()


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """`host:port,host:port` taken apart; the port may be left out (9092)."""
    try:
        return parse_addresses(bootstrap)
    except BadAddressError as error:
        raise ClientError(str(error)) from error


def reach(bootstrap: str) -> None:
    """Raise `UnreachableError` at once when nobody listens; librdkafka would go on trying until its timeout."""
    for address in addresses(bootstrap):
        try:
            with socket.create_connection(address, CONNECT_SECONDS):
                return
        except OSError:
            continue
    raise unreachable(bootstrap)


def handle_settings(bootstrap: str, *, debug: bool, **more: Any) -> dict[str, Any]:
    """For any librdkafka handle: its chatter goes to our log, and is seen only by those who debug."""
    logger = logging.getLogger("penstock.client.librdkafka")
    if not debug:
        logger.addHandler(_SILENT)
        logger.propagate = False
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "penstock",
        "logger": logger,
        "socket.keepalive.enable": True,
        "topic.metadata.refresh.fast.interval.ms": 50,
        **more,
    }
