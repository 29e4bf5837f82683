"""What each of several brokers of one service is told."""

from itertools import pairwise

import pytest

from penstock.cli.errors import CommandError
from penstock.cli.options import parse_pairs
from penstock.cli.running.start import load_config
from penstock.cli.running.workers import Crew, _check_room
from penstock.config.broker import BrokerConfig
from penstock.core.endpoints import Address

TWO = {
    "listeners": "CLIENTS://0.0.0.0:9092,BROKERS://127.0.0.1:9192",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


def told(crew: Crew, number: int, port: int) -> BrokerConfig:
    """The settings of one worker, as it would read its command line."""
    line = crew.command(number, port)
    pairs = parse_pairs("--set", [value for option, value in pairwise(line) if option == "--set"])
    return load_config({**pairs, "node.id": line[line.index("--id") + 1]}, None)


@pytest.mark.parametrize("name", ["node.id", "broker.id"])
def test_each_worker_has_a_number_of_its_own_whatever_the_setting_was_called(name: str) -> None:
    config = load_config({name: "10"}, Address("127.0.0.1", 0))
    assert told(Crew(config, 2, ["--set", f"{name}=10"]), 1, 0).node_id == 11


def test_each_worker_has_ports_of_its_own_for_all_listeners() -> None:
    flags = {**TWO, "advertised.listeners": "CLIENTS://kafka.example:19092,BROKERS://127.0.0.1:0"}
    arguments = [word for name, value in flags.items() for word in ("--set", f"{name}={value}")]
    crew = Crew(load_config(flags, None), 2, arguments)
    assert crew.port(1) == 9093
    listeners = told(crew, 1, 9093).listeners
    assert [listener.text for listener in listeners] == ["CLIENTS://0.0.0.0:9093", "BROKERS://127.0.0.1:9193"]
    assert [listener.advertised for listener in listeners] == [
        Address("kafka.example", 19093),
        Address("127.0.0.1", 0),
    ]


def test_workers_whose_ports_would_meet_are_refused() -> None:
    _check_room(Crew(load_config(TWO, None), 100, []))
    with pytest.raises(CommandError, match="CLIENTS takes 9192"):
        _check_room(Crew(load_config(TWO, None), 101, []))
