"""The `penstock` command. Commands live in modules of their own and import what they need when they run."""

import sys
from typing import Annotated

import typer

from penstock.cli.command import AsJson, Bootstrap, Debug, RootOptions, is_usage_error, say_error
from penstock.cli.errors import INTERRUPTED, WRONG_USE
from penstock.cli.running.streams import open_closed_streams

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from penstock import __version__

        print(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
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


def _register() -> None:
    """Each module adds its commands to the app it is given."""
    from penstock.cli import (
        bench,
        broker_admin,
        consume,
        dlq,
        doctor,
        group,
        plan,
        produce,
        status,
        topic,
        verify,
        why,
    )
    from penstock.cli.pipeline import commands as pipeline
    from penstock.cli.running import broker, cluster, up

    for module in (
        up,
        broker,
        cluster,
        status,
        broker_admin,
        topic,
        produce,
        consume,
        group,
        dlq,
        pipeline,
        verify,
        why,
        doctor,
        bench,
        plan,
    ):
        module.register(app)


_register()


def main() -> None:
    """Run a command; wrong use is one line that names the help, not a page of it."""
    open_closed_streams()
    try:
        code = app(standalone_mode=False, prog_name="penstock")
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
