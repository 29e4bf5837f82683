"""Clients are told an address they can reach."""

import socket

import pytest

from penstock.config.broker import BrokerConfig
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
