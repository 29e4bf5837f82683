"""Addresses of brokers: one to listen on or to connect to, and one under the name of its listener."""

from collections.abc import Iterable
from typing import NamedTuple

# To listen on: every address of the machine. Nobody can connect to them.
WILDCARDS = frozenset({"0.0.0.0", "::"})


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Endpoint(NamedTuple):
    """Where one listener of a broker is reached."""

    listener: str
    protocol: str  # the security protocol spoken there, by Kafka's name
    host: str
    port: int


def find_endpoint(endpoints: Iterable[Endpoint], listener: str) -> Endpoint | None:
    return next((endpoint for endpoint in endpoints if endpoint.listener == listener), None)
