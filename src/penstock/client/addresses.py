"""Bootstrap addresses, taken apart without any client library."""

from penstock.core.errors import PenstockError


class BadAddressError(PenstockError):
    """Not HOST:PORT; the message says what to write."""


def parse_addresses(bootstrap: str) -> list[tuple[str, int]]:
    """`host:port,host:port` taken apart; the port may be left out (9092)."""
    found = []
    for entry in bootstrap.split(","):
        entry = entry.strip().rpartition("://")[2]
        host, colon, port = entry.rpartition(":")
        if not colon or entry.endswith("]"):
            host, port = entry, "9092"
        if not host or not port.isdecimal():
            raise BadAddressError(
                f"{bootstrap!r} is not a bootstrap address: write HOST:PORT, such as 127.0.0.1:9092"
            )
        found.append((host.removeprefix("[").removesuffix("]"), int(port)))
    return found
