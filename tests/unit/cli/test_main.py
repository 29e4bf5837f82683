"""Each command comes from a module of its own, and only the one that is called is loaded."""

import pytest

from penstock.cli.main import COMMANDS, made_app, needed


@pytest.mark.parametrize("name", COMMANDS)
def test_a_module_adds_the_command_of_its_name(name: str) -> None:
    app = made_app([name])
    assert [entry.name for entry in (*app.registered_commands, *app.registered_groups)] == [name]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["up", "--port", "0"], ["up"]),
        (["--json", "topic", "list"], list(COMMANDS)),
        (["tpoic"], list(COMMANDS)),
        ([], list(COMMANDS)),
    ],
)
def test_only_the_command_that_is_called_is_needed(arguments: list[str], wanted: list[str]) -> None:
    assert list(needed(arguments)) == wanted
