"""What is in packaging/ fits the broker: settings exist, commands are commands, and a broker starts with them.

Images are not built here (that needs a daemon), so what can be read off their files is checked instead.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from tests.integration.commands import COMMAND, environment
from tests.integration.pages import ROOT

from penstock.cli.main import made_app
from penstock.client.admin.admin import Admin
from penstock.config.broker import BrokerConfig
from penstock.config.broker_settings import BROKER_SETTINGS
from penstock.config.sources import from_toml, load_broker_config, unknown_variables
from penstock.coordination.zookeeper.server_process import ZooKeeperProcess

PACKAGING = ROOT / "packaging"
TOML = PACKAGING / "penstock.toml"
UNIT = PACKAGING / "systemd" / "penstock.service"
DOCKERFILE = PACKAGING / "docker" / "Dockerfile"
COMPOSE = {name: PACKAGING / "docker" / f"compose-{name}.yml" for name in ("one", "three")}
# Where the files put things, and where they are here.
INSTALLED_TOML = "/etc/penstock/penstock.toml"
DATA_DIR = "/var/lib/penstock"


def uncommented() -> str:
    """The settings with all that may be uncommented."""
    return re.sub(r'^# (?=[a-z."]+ = )', "", TOML.read_text(), flags=re.MULTILINE)


def services(name: str) -> dict[str, Any]:
    """Those of a compose file that run the broker."""
    found = yaml.safe_load(COMPOSE[name].read_text())["services"]
    return {name: service for name, service in found.items() if service["image"] == "penstock"}


def check_command(words: Sequence[str]) -> dict[str, Any]:
    """That the command line takes them; what it makes of them."""
    root: Any = typer.main.get_command(made_app())
    command = root.get_command(None, words[0])
    assert command is not None, f"there is no `penstock {words[0]}`"
    parsed: dict[str, Any] = command.make_context(words[0], list(words[1:])).params
    return parsed


def configured(service: Mapping[str, Any]) -> BrokerConfig:
    """The settings that a broker of a compose file has."""
    variables = {
        name: value.replace("${PENSTOCK_HOST:-localhost}", "localhost")
        for name, value in service["environment"].items()
    }
    assert unknown_variables(variables) == []
    options = check_command(service["command"])
    assert str(options["config"]) == INSTALLED_TOML
    flags = {
        "node.id": options["id_"],
        "listeners": options["listener"] and f"PLAINTEXT://{options['listener']}",
    }
    return load_broker_config(
        flags={name: str(value) for name, value in flags.items() if value is not None},
        environment=variables,
        file=TOML.read_bytes(),
    )


@contextmanager
def running(
    words: Sequence[str], data_dir: Path, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[str, str]]:
    """`penstock` with these words, but on free ports and with its data here; gives its address and its console's."""
    here = [str(TOML) if word == INSTALLED_TOML else word for word in words]
    process = subprocess.Popen(
        [*COMMAND, *here, "--listener", "127.0.0.1:0", "--console-port", "0", "--data-dir", str(data_dir)],
        env=environment(extra=variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            said: list[str] = []
            for line in process.stdout:
                said.append(line)
                if "; ready after " in line:
                    break
            told = "".join(said)
            address = re.search(r"^penstock listens on (\S+)", told, re.MULTILINE)
            console = re.search(r"^metrics and health on (\S+)", told, re.MULTILINE)
            assert address is not None, "the broker did not start"
            assert console is not None
            yield address[1], console[1]
        finally:
            process.terminate()
        assert process.wait() == 0


def start(words: Sequence[str], data_dir: Path, variables: Mapping[str, str] | None = None) -> None:
    """It serves, and the image's check of its health says so."""
    with running(words, data_dir, variables) as (_, console):
        check = health_check().replace("http://127.0.0.1:9080", console)
        subprocess.run([sys.executable, "-c", check], check=True)
    assert json.loads((data_dir / "identity.json").read_text())["node_id"] == 1


INSTRUCTIONS = re.compile("FROM|WORKDIR|COPY|RUN|USER|VOLUME|EXPOSE|STOPSIGNAL|HEALTHCHECK|ENTRYPOINT|CMD")


def instructions() -> list[tuple[str, str]]:
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = [(line.split()[0], line.split(maxsplit=1)[1].strip()) for line in lines]
    assert all(INSTRUCTIONS.fullmatch(word) for word, _ in found)
    return found


def health_check() -> str:
    (check,) = [rest for word, rest in instructions() if word == "HEALTHCHECK"]
    words = json.loads(check.partition("CMD ")[2])
    assert words[:2] == ["python", "-c"]
    return str(words[2])


def test_every_setting_of_the_file_exists_also_those_that_are_commented_out() -> None:
    given, all_ = from_toml(TOML.read_bytes()), from_toml(uncommented().encode())
    assert given.keys() < all_.keys() <= BROKER_SETTINGS.keys()
    assert len(all_) > 20
    tomllib.loads(uncommented())


def test_what_is_commented_out_is_the_default_or_an_example() -> None:
    examples = {
        "advertised.listeners",
        "zookeeper.connect",
        "broker.rack",
        "default.replication.factor",
        "min.insync.replicas",
    }
    given, all_ = from_toml(TOML.read_bytes()), from_toml(uncommented().encode())
    own = BrokerConfig.resolve(given).values
    resolved = BrokerConfig.resolve(all_).values
    differing = {name for name in all_.keys() - given.keys() if resolved[name] != own[name]}
    assert differing == examples


def test_groups_wait_for_more_members_as_in_kafka() -> None:
    """Not so with `penstock up` and in tests (test_testing_page.py), where nobody comes later."""
    assert BrokerConfig.resolve(from_toml(TOML.read_bytes())).group_initial_rebalance_delay_ms == 3000


def test_a_broker_starts_as_the_unit_starts_it(tmp_path: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    program, *words = shlex.split(line)
    assert program == "/opt/penstock/bin/penstock"
    check_command(words)
    start(words, tmp_path / "data")


def test_the_unit_is_one(tmp_path: Path) -> None:
    text = UNIT.read_text()
    assert f"StateDirectory={Path(DATA_DIR).name}\n" in text
    # A stop must have the time that the runbook promises.
    assert "TimeoutStopSec=60" in text
    if analyze := shutil.which("systemd-analyze"):
        here = tmp_path / UNIT.name
        here.write_text(text.replace("/opt/penstock/bin/penstock", shutil.which("true") or "/bin/true"))
        done = subprocess.run([analyze, "verify", str(here)], capture_output=True, text=True, check=False)
        assert UNIT.name not in done.stderr, done.stderr


def test_the_image_runs_the_broker_as_somebody_without_rights(tmp_path: Path) -> None:
    found = instructions()
    last = [rest for word, rest in found if word in {"USER", "VOLUME", "EXPOSE", "ENTRYPOINT", "CMD"}]
    user, volume, ports, entry, command = last
    assert user == "penstock"
    assert volume == DATA_DIR
    settings = from_toml(TOML.read_bytes())
    assert ports.split() == [settings["listeners"].rpartition(":")[2], settings["penstock.console.port"]]
    assert json.loads(entry) == ["penstock"]
    check_command(json.loads(command))
    start(json.loads(command), tmp_path / "data")


def test_the_image_is_made_of_what_is_there() -> None:
    ignored = (PACKAGING / "docker" / "Dockerfile.dockerignore").read_text().split()
    for word, rest in instructions():
        if word == "FROM":
            assert re.fullmatch(r"[a-z]+:[0-9][\w.-]*( AS \w+)?", rest), "an image by its version"
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in ignored, f"{source} does not reach the build"


def test_one_broker_of_compose_starts(tmp_path: Path) -> None:
    (service,) = services("one").values()
    config = configured(service)
    assert config.values["advertised.listeners"] == ("PLAINTEXT://localhost:9092",)
    variables = {"PENSTOCK_LOG_FORMAT": service["environment"]["PENSTOCK_LOG_FORMAT"]}
    start(service["command"], tmp_path / "data", variables)


def test_three_brokers_of_compose_are_one_cluster() -> None:
    brokers = services("three")
    configs = {name: configured(service).values for name, service in brokers.items()}
    assert sorted(config["node.id"] for config in configs.values()) == [1, 2, 3]
    assert {config["zookeeper.connect"] for config in configs.values()} == {"zookeeper:2181/penstock"}
    assert "zookeeper" in yaml.safe_load(COMPOSE["three"].read_text())["services"]
    for name, service in brokers.items():
        (listens,), (advertised,) = configs[name]["listeners"], configs[name]["advertised.listeners"]
        port = listens.rpartition(":")[2]
        # Brokers find each other by this name, which is the container's, and the port is the same outside.
        assert advertised == f"PLAINTEXT://{name}:{port}"
        assert f"{port}:{port}" in service["ports"]
    taken = [port.partition(":")[0] for service in brokers.values() for port in service["ports"]]
    assert len(set(taken)) == len(taken)


def test_three_brokers_of_compose_find_each_other(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    with ExitStack() as stack:
        for name, service in services("three").items():
            variables = service["environment"] | {
                "PENSTOCK_ZOOKEEPER_CONNECT": f"{zookeeper.connect}/compose"
            }
            # Containers have names here, and their ports.
            del variables["PENSTOCK_ADVERTISED_LISTENERS"]
            address, _ = stack.enter_context(running(service["command"], tmp_path / name, variables))
        admin = Admin(address)
        assert admin.live_brokers() == [1, 2, 3]
        admin.create("orders", partitions=1)
        assert admin.describe("orders").replicas == 3
        assert admin.setting_of_topic("orders", "min.insync.replicas") == "2"


@pytest.mark.parametrize("name", COMPOSE)
def test_data_outlives_the_containers(name: str) -> None:
    file = yaml.safe_load(COMPOSE[name].read_text())
    kept = [service["volumes"] for service in services(name).values()]
    names = [volume.partition(":")[0] for volumes in kept for volume in volumes]
    assert len(set(names)) == len(names), "each broker has a volume of its own"
    assert set(names) <= file["volumes"].keys()
    assert all(volume.endswith(f":{DATA_DIR}") for volumes in kept for volume in volumes)


def test_logs_are_rotated() -> None:
    if logrotate := shutil.which("logrotate"):
        done = subprocess.run(
            [logrotate, "-d", str(PACKAGING / "logrotate.conf")], capture_output=True, text=True, check=False
        )
        assert "error:" not in done.stderr, done.stderr
    assert "copytruncate" in (PACKAGING / "logrotate.conf").read_text()
