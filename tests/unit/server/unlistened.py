"""A listener without an address, for connections over transports that are the test's own."""

import asyncio
from collections.abc import Callable

from penstock.config.listeners import ListenerConfig
from penstock.core.descriptors import Descriptors, Shares
from penstock.core.endpoints import Address
from penstock.server.connections import Connections
from penstock.server.kafka_connection import KafkaConnection
from penstock.server.listener import Listener
from penstock.server.owing import Dispatcher
from penstock.server.sending import SendBudget
from penstock.server.writer import TransportWriter, Writer


class Unlistened:
    name = "CLIENTS"

    def writer(self, transport: asyncio.Transport, drained: Callable[[], None]) -> Writer:
        return TransportWriter(transport)


def connections(loop: asyncio.AbstractEventLoop, request_bytes_max: int = 1000) -> Connections:
    return Connections(
        loop,
        request_bytes_max=request_bytes_max,
        receiving_bytes_max=1 << 23,
        connections_max=10,
        connections_per_ip_max=10,
        idle_ms_max=600_000,
        descriptors=Descriptors(Shares(100, 100)),
        send_budget=SendBudget(loop),
    )


def real_listener(
    loop: asyncio.AbstractEventLoop, host: Connections, dispatcher: Dispatcher, *, past_transport: bool = True
) -> Listener:
    return Listener(
        loop,
        ListenerConfig("CLIENTS", "PLAINTEXT", Address("127.0.0.1", 0), None),
        lambda listener: KafkaConnection(loop, host, dispatcher, listener),
        past_transport=past_transport,
    )
