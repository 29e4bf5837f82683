"""Clients are told an address they can reach."""

import socket

import pytest

from penstock.config.broker import BrokerConfig
from penstock.config.settings import ConfigError
from penstock.server.run import advertised_address


@pytest.mark.parametrize(
    ("settings", "host", "told"),
    [
        ({}, "127.0.0.1", None),
        ({}, "0.0.0.0", (socket.gethostname(), 0)),
        ({}, "::", (socket.gethostname(), 0)),
        ({"advertised.listeners": "PLAINTEXT://broker.example:19092"}, "0.0.0.0", ("broker.example", 19092)),
        ({"advertised.listeners": "PLAINTEXT://[::1]:19092"}, "::1", ("::1", 19092)),
    ],
)
def test_advertised_address(settings: dict[str, str], host: str, told: tuple[str, int] | None) -> None:
    assert advertised_address(BrokerConfig.resolve(settings), host) == told


@pytest.mark.parametrize(
    "address",
    [
        "PLAINTEXT://localhost:99999",
        "PLAINTEXT://" + "a" * 70 + ":9092",
        "PLAINTEXT://a..b:9092",
        "localhost",
        "//:1",
    ],
)
def test_what_is_no_address_is_refused_at_the_start(address: str) -> None:
    """All others would ask there, for ever."""
    with pytest.raises(ConfigError, match="Not an address"):
        BrokerConfig.resolve({"advertised.listeners": address})
