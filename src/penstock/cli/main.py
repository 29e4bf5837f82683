"""The `penstock` command. Commands live in modules of their own and import what they need when they run."""

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Annotated

import typer

from penstock.cli.command import AsJson, Bootstrap, Debug, RootOptions, is_usage_error, say_error
from penstock.cli.errors import INTERRUPTED, WRONG_USE
from penstock.cli.running.streams import open_closed_streams

# In the order of the help. Each module adds the command, or the group of commands, of this name to the app it is given.
COMMANDS = {
    "up": "running.up",
    "broker": "running.broker",
    "cluster": "running.cluster",
    "status": "status",
    "broker-admin": "broker_admin",
    "topic": "topic",
    "produce": "produce",
    "consume": "consume",
    "group": "group",
    "dlq": "dlq",
    "txn": "txn",
    "pipeline": "pipeline.commands",
    "verify": "verify",
    "why": "why",
    "doctor": "doctor",
    "bench": "bench",
    "plan": "plan",
}


def _version(wanted: bool) -> None:
    if wanted:
        from penstock import __version__

        print(f"penstock {__version__}")
        raise typer.Exit


def _root(
    ctx: typer.Context,
    bootstrap: Bootstrap = None,
    json: AsJson = False,
    debug: Debug = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Penstock: one log for Kafka clients and Spark.

    Start a broker with `penstock up`, then, in another terminal:

    \b
      penstock topic create orders --partitions 3
      echo hello | penstock produce orders
      penstock consume orders --from-beginning
    """
    del version
    ctx.obj = RootOptions(bootstrap, json, debug)


def made_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """With these commands."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in names:
        import_module(f"penstock.cli.{COMMANDS[name]}").register(app)
    return app


def needed(arguments: Sequence[str]) -> Iterable[str]:
    """Only the command that is called, where that is the first word: a broker starts the sooner."""
    return arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS


def main() -> None:
    """Run a command; wrong use is one line that names the help, not a page of it."""
    open_closed_streams()
    try:
        code = made_app(needed(sys.argv[1:]))(standalone_mode=False, prog_name="penstock")
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except Exception as error:
        if not is_usage_error(error):
            raise
        sys.exit(_wrong_use(error))
    sys.exit(code if isinstance(code, int) else 0)


def _wrong_use(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        return WRONG_USE  # the help has been printed already
    path = context.command_path if context is not None else "penstock"
    message = " ".join(str(getattr(error, "format_message", error.__str__)()).split())
    say_error(f"{message.rstrip('.')}; see `{path} --help`")
    return WRONG_USE


if __name__ == "__main__":
    main()
