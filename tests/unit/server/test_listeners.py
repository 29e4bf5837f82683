"""What clients of each listener are told, and what others read of it in the coordination store."""

import asyncio
import json
import socket

import pytest
from tests.unit.frontends.in_memory import Machine
from tests.unit.server.unlistened import connections

from penstock.config.broker import BrokerConfig
from penstock.coordination.registration import decode_broker
from penstock.coordination.tree import Node
from penstock.core.endpoints import Address, Endpoint
from penstock.server.listener import Listeners
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.connection import ClientConnection
from penstock.wire.kafka.generated.api_versions import ApiVersionsRequest

TWO = {
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "advertised.listeners": "CLIENTS://kafka.example:19092,BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:9092"}, [("127.0.0.1", 9092)]),
        ({"listeners": "PLAINTEXT://:9092"}, [(socket.gethostname(), 9092)]),
        ({"listeners": "PLAINTEXT://[::]:9092"}, [(socket.gethostname(), 9092)]),
        ({"advertised.listeners": "PLAINTEXT://[::1]:19092"}, [("::1", 19092)]),
        ({"advertised.listeners": "PLAINTEXT://kafka.example:0"}, [("kafka.example", 9092)]),
        ({**TWO, "advertised.listeners": "BROKERS://127.0.0.1:7"}, [("127.0.0.1", 7)]),
    ],
)
async def test_an_address_that_clients_can_reach(settings: dict[str, str], told: list[Address]) -> None:
    loop = asyncio.get_running_loop()
    config = BrokerConfig.resolve(settings)
    listeners = Listeners(loop, config, connections(loop), lambda _: None, has_sockets=True)  # type: ignore[arg-type,return-value]
    assert [(endpoint.host, endpoint.port) for endpoint in listeners.endpoints] == told


async def test_brokers_find_it_by_their_listener_and_clients_by_theirs() -> None:
    async with Machine(TWO).broker() as asked:
        clients, brokers = asked.broker.listeners.all
        assert clients.address.port != brokers.address.port
        registered = asked.services.image.brokers[1]
        assert (registered.host, registered.port) == ("127.0.0.1", brokers.address.port)
        assert registered.endpoints == (
            Endpoint("CLIENTS", "PLAINTEXT", "kafka.example", 19092),
            Endpoint("BROKERS", "PLAINTEXT", "127.0.0.1", brokers.address.port),
        )
        assert registered.address_for("CLIENTS") == Address("kafka.example", 19092)
        assert registered.address_for("OTHERS") is None
        node = await asked.tree.get("/brokers/1")
        assert node is not None
        assert decode_broker("/brokers/1", node) == registered
        # An older version reads no more than this.
        assert (json.loads(node.data)["host"], json.loads(node.data)["port"]) == brokers.address


def test_what_an_older_broker_registered_still_opens() -> None:
    data = b'{"identity":"d1","host":"kafka1","port":9092,"rack":null,"incarnation":"","machine":null,"stopping":false}'
    registered = decode_broker("/brokers/7", Node(data, version=0, created=12, modified=12))
    assert (registered.id, registered.epoch, registered.endpoints) == (7, 12, ())
    # It has one address, whatever the others call theirs.
    assert registered.address_for("CLIENTS") == registered.address_for("BROKERS") == Address("kafka1", 9092)


async def test_a_connection_knows_its_listener_and_its_client() -> None:
    seen = []
    async with Machine(TWO).broker() as asked:
        for listener in asked.broker.listeners.all:
            reader, writer = await asyncio.open_connection(*listener.address)
            client = ClientConnection("tester")
            request = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.3.0")
            writer.write(client.send(ApiKey.API_VERSIONS, 3, request)[1])
            while not [*client.receive(await reader.read(65536))]:
                pass
            stream = list(asked.broker.connections._all)[-1]
            seen.append(stream.session)
            writer.close()
    assert [session.listener for session in seen] == ["CLIENTS", "BROKERS"]
    for session in seen:
        assert (session.peer, session.client_id) == ("127.0.0.1", "tester")
        assert (session.client_software_name, session.client_software_version) == ("librdkafka", "2.3.0")


async def test_a_port_that_is_taken_leaves_none_of_the_others_open() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        second = f"BROKERS://127.0.0.1:{taken.getsockname()[1]}"
        loop, config = (
            asyncio.get_running_loop(),
            BrokerConfig.resolve({**TWO, "listeners": f"CLIENTS://127.0.0.1:0,{second}"}),
        )
        listeners = Listeners(loop, config, connections(loop), lambda _: None, has_sockets=True)  # type: ignore[arg-type,return-value]
        with pytest.raises(OSError, match="in use"):
            await listeners.bind(10)
        await listeners.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*listeners.all[0].address)
