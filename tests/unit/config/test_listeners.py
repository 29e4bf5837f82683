"""Which listeners a broker has: Kafka's rules, and what is said where they are broken."""

import pytest

from penstock.config import BrokerConfig, ConfigError
from penstock.core.endpoints import Address

LISTENERS, ADVERTISED = "listeners", "advertised.listeners"
MAP, BETWEEN = "listener.security.protocol.map", "inter.broker.listener.name"
TWO = {
    LISTENERS: "CLIENTS://:9092,BROKERS://10.0.0.1:9093",
    MAP: "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    BETWEEN: "BROKERS",
}


def test_by_default_there_is_one_and_brokers_use_it() -> None:
    config = BrokerConfig.resolve({})
    [listener] = config.listeners
    assert (listener.name, listener.protocol) == ("PLAINTEXT", "PLAINTEXT")
    assert listener.address == listener.advertised == Address("0.0.0.0", 9092)
    assert config.inter_broker_listener_name == "PLAINTEXT"


def test_several_with_names_of_their_own() -> None:
    config = BrokerConfig.resolve(TWO)
    assert [listener.text for listener in config.listeners] == [
        "CLIENTS://0.0.0.0:9092",
        "BROKERS://10.0.0.1:9093",
    ]
    assert config.inter_broker_listener_name == "BROKERS"


def test_names_have_no_case() -> None:
    lower = {name: value.lower() for name, value in TWO.items()}
    assert BrokerConfig.resolve(lower).listeners == BrokerConfig.resolve(TWO).listeners
    assert BrokerConfig.resolve(lower).inter_broker_listener_name == "BROKERS"


def test_each_is_advertised_by_its_name() -> None:
    told = "BROKERS://10.0.0.1:0,CLIENTS://kafka.example:19092"
    config = BrokerConfig.resolve({**TWO, ADVERTISED: told})
    assert [listener.advertised for listener in config.listeners] == [
        Address("kafka.example", 19092),
        Address("10.0.0.1", 0),
    ]


def test_one_that_is_not_advertised_is_told_to_nobody() -> None:
    config = BrokerConfig.resolve({**TWO, ADVERTISED: "BROKERS://10.0.0.1:9093"})
    assert [listener.advertised for listener in config.listeners] == [None, Address("10.0.0.1", 9093)]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("PLAINTEXT://[::1]:9092", Address("::1", 9092)),
        ("PLAINTEXT://broker_1.example:1", Address("broker_1.example", 1)),
        ("127.0.0.1:9092", Address("127.0.0.1", 9092)),  # as on the command line
    ],
)
def test_addresses(text: str, address: Address) -> None:
    [listener] = BrokerConfig.resolve({LISTENERS: text, ADVERTISED: text}).listeners
    assert (listener.address, listener.advertised) == (address, address)


def test_an_ipv4_and_an_ipv6_address_may_share_a_port_and_any_free_one_is_not_shared() -> None:
    shared = {**TWO, LISTENERS: "CLIENTS://127.0.0.1:9092,BROKERS://[::1]:9092"}
    assert len(BrokerConfig.resolve(shared).listeners) == 2
    free = {**TWO, LISTENERS: "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0"}
    assert len(BrokerConfig.resolve(free).listeners) == 2


@pytest.mark.parametrize("setting", [LISTENERS, ADVERTISED])
@pytest.mark.parametrize(
    "address",
    [
        "PLAINTEXT://localhost:99999",
        "PLAINTEXT://" + "a" * 70 + ":9092",
        "PLAINTEXT://a..b:9092",
        "PLAINTEXT://[localhost]:9092",
        "PLAINTEXT://localhost:-1",
        "PLAINTEXT://localhost",
        "://localhost:1",
        "localhost",
        "//:1",
    ],
)
def test_what_is_no_address_is_refused_at_the_start(setting: str, address: str) -> None:
    """All others would ask there, for ever."""
    with pytest.raises(ConfigError, match=f"for configuration {setting}: Not an address"):
        BrokerConfig.resolve({setting: address})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        # One name, one port.
        ({LISTENERS: "A://h:1,B://h:2,a://h:3"}, "listeners has A twice"),
        ({LISTENERS: "CLIENTS://h:9092,BROKERS://g:9092"}, "port 9092 for CLIENTS and BROKERS"),
        ({ADVERTISED: "CLIENTS://h:1,CLIENTS://h:2"}, "advertised.listeners has CLIENTS twice"),
        # What a name speaks.
        ({MAP: "CLIENTS:PLAINTEXT"}, r"listeners has BROKERS, .* add BROKERS:PLAINTEXT"),
        (
            {MAP: "CLIENTS:PLAINTEXT,BROKERS:SSL"},
            "BROKERS, which speaks SSL by listener.security.protocol.map",
        ),
        ({MAP: "CLIENTS:SASL_SSL,BROKERS:PLAINTEXT"}, "CLIENTS, which speaks SASL_SSL .* only PLAINTEXT"),
        ({MAP: "CLIENTS:TLS,BROKERS:PLAINTEXT"}, "listener.security.protocol.map: there is no .* TLS"),
        ({MAP: "CLIENTS:PLAINTEXT,CLIENTS:SSL"}, "listener.security.protocol.map: CLIENTS is there twice"),
        ({MAP: "CLIENTS"}, "'CLIENTS' is no NAME:PROTOCOL"),
        # What clients are told.
        ({ADVERTISED: "CLIENTS://0.0.0.0:9092,BROKERS://h:1"}, r"cannot use 0\.0\.0\.0 for CLIENTS"),
        ({ADVERTISED: "CLIENTS://[::]:9092,BROKERS://h:1"}, "cannot use :: for CLIENTS"),
        (
            {ADVERTISED: "OTHERS://h:9092,BROKERS://h:1"},
            "has OTHERS, which listeners has not: .* CLIENTS, BROKERS",
        ),
        # What brokers use.
        ({BETWEEN: ""}, "say with inter.broker.listener.name which they use of CLIENTS, BROKERS"),
        ({BETWEEN: "OTHERS"}, "inter.broker.listener.name is OTHERS, .*map does not have"),
        ({ADVERTISED: "CLIENTS://h:9092"}, "inter.broker.listener.name is BROKERS, which is not advertised"),
        ({"security.inter.broker.protocol": "PLAINTEXT"}, "Only one of inter.broker.listener.name and"),
    ],
)
def test_what_breaks_the_rules_is_refused_with_the_setting_that_does(
    settings: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        BrokerConfig.resolve({**TWO, **settings})


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_protocol_that_is_not_served_is_not_taken_for_plaintext(protocol: str) -> None:
    with pytest.raises(ConfigError, match=f"listeners has {protocol}, which speaks {protocol}"):
        BrokerConfig.resolve({LISTENERS: f"PLAINTEXT://h:1,{protocol}://h:2"})
