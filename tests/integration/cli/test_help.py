"""Help and version: complete, and cheap, since every other command pays for the start too."""

import subprocess
import sys

import pytest
from tests.integration.commands import environment, penstock, penstock_here

COMMANDS = [
    "up",
    "broker",
    "status",
    "verify",
    "broker-admin",
    "topic",
    "produce",
    "consume",
    "group",
    "dlq",
    "txn",
    "why",
    "doctor",
    "bench",
    "plan",
]
# Each of these takes longer to import than the help takes to print.
HEAVY = {
    "asyncio",
    "confluent_kafka",
    "uvloop",
    "crc32c",
    "penstock.server",
    "penstock.wire",
    "sqlite3",
}


def test_help_names_every_command() -> None:
    done = penstock("--help")
    assert done.code == 0
    assert all(f" {name} " in done.out for name in COMMANDS)
    assert penstock("--version").out.startswith("penstock ")


@pytest.mark.parametrize(
    "name",
    [[name] for name in COMMANDS if name not in ("topic", "group", "dlq", "txn", "broker-admin")]
    + [
        ["broker-admin", "drain"],
        ["topic", "create"],
        ["group", "describe"],
        ["group", "reset"],
        ["dlq", "replay"],
        ["txn", "list"],
        ["txn", "describe"],
        ["txn", "abort"],
        ["txn", "find-hanging"],
    ],
)
def test_each_command_explains_itself_with_examples(
    name: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    done = penstock_here(capfd, *name, "--help")
    assert done.code == 0
    assert "Examples:" in done.out
    assert f"penstock {' '.join(name)}" in done.out.partition("Examples:")[2]
    assert "--bootstrap" in done.out


TELL_LOADED = """
import atexit, sys
from penstock.cli.main import main

atexit.register(lambda: print(*sys.modules, file=sys.stderr))
main()
"""


def loaded_by(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", TELL_LOADED, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["topic", "create", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    loaded = loaded_by(*arguments)
    assert "penstock.cli.topic" in loaded
    assert not loaded & HEAVY


def test_a_command_loads_no_other_and_no_validation_library() -> None:
    """Every start of a broker would pay for it."""
    loaded = loaded_by("up", "--help")
    assert "penstock.cli.running.up" in loaded
    assert not loaded & {"penstock.cli.topic", "penstock.cli.running.cluster", "penstock.client", "pydantic"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tpoic"], "No such command 'tpoic'"),
        (["topic", "create", "x", "--partition", "3"], "--partition"),
        (["produce"], "Missing argument 'TOPIC'"),
        (["consume", "t", "--format", "xml"], "--format"),
    ],
)
def test_wrong_use_is_one_line_that_names_the_help(
    arguments: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    done = penstock_here(capfd, *arguments)
    assert done.code == 2
    assert words in done.said()
    assert "--help`" in done.said()


@pytest.mark.parametrize("arguments", [[], ["topic"]])
def test_without_a_command_the_help_is_shown(arguments: list[str]) -> None:
    done = penstock(*arguments)
    assert done.code == 2
    assert "Usage:" in done.out + done.err


def test_help_shows_the_names_of_extras() -> None:
    assert "[cluster,spark]" in penstock("cluster", "up", "--help").out
