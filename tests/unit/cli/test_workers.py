"""What each of several brokers of one service is told."""

from itertools import pairwise

import pytest

from penstock.cli.options import parse_pairs
from penstock.cli.start import Endpoint, load_config
from penstock.cli.workers import Crew


@pytest.mark.parametrize("name", ["node.id", "broker.id"])
def test_each_worker_has_a_number_of_its_own_whatever_the_setting_was_called(name: str) -> None:
    config, endpoint = load_config({name: "10"}, Endpoint("127.0.0.1", 0))
    line = Crew(config, endpoint, 2, ["--set", f"{name}=10"]).command(1, 0)
    pairs = parse_pairs("--set", [value for option, value in pairwise(line) if option == "--set"])
    worker, _ = load_config({**pairs, "node.id": line[line.index("--id") + 1]}, endpoint)
    assert worker.node_id == 11
