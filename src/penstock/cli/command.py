"""What every command shares: the global options, accepted before and after its name, and the way it fails.

A command is a function that takes a `Session` first. `command` gives it the global options, so that
`penstock --json topic list` and `penstock topic list --json` are the same.
"""

import inspect
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Concatenate, ParamSpec, TextIO

import typer

from penstock.cli.errors import INTERRUPTED, CommandError, explain

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_PANEL = "Global options"

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        help=f"The broker to talk to (default: $PENSTOCK_BOOTSTRAP or {DEFAULT_BOOTSTRAP}).",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.", rich_help_panel=_PANEL)]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show tracebacks and library logs.", rich_help_panel=_PANEL)
]

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Session:
    """The global options, as one command run got them."""

    bootstrap: str
    json: bool
    debug: bool


@dataclass(frozen=True, slots=True)
class RootOptions:
    """The global options given before the command's name."""

    bootstrap: str | None = None
    json: bool = False
    debug: bool = False


def command(
    app: typer.Typer,
    name: str,
    *,
    examples: tuple[str, ...] = (),
    context_settings: dict[str, Any] | None = None,
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[Concatenate[Session, P], None]]:
    """Register a function as `penstock … name`; its docstring is the help, followed by the examples."""

    def register(
        function: Callable[Concatenate[Session, P], None],
    ) -> Callable[Concatenate[Session, P], None]:
        text = inspect.cleandoc(function.__doc__ or "")
        if examples:
            text += "\n\n\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples)
        text = text.replace("[", r"\[")  # help is markup, which would eat the names of extras
        made = app.command(
            name, help=text, short_help=text.partition("\n")[0], context_settings=context_settings
        )
        made(_with_globals(function))
        return function

    return register


def _with_globals(function: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """The function as typer should see it: its own options, then the global ones."""
    own = list(inspect.signature(function).parameters.values())[1:]
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    added = [
        inspect.Parameter("bootstrap", positional, default=None, annotation=Bootstrap),
        inspect.Parameter("json", positional, default=False, annotation=AsJson),
        inspect.Parameter("debug", positional, default=False, annotation=Debug),
    ]
    first = inspect.Parameter("ctx", positional, annotation=typer.Context)

    @wraps(function)
    def run(ctx: typer.Context, *, bootstrap: str | None, json: bool, debug: bool, **arguments: Any) -> None:
        root = ctx.obj if isinstance(ctx.obj, RootOptions) else RootOptions()
        default = os.environ.get("PENSTOCK_BOOTSTRAP") or DEFAULT_BOOTSTRAP
        session = Session(
            bootstrap or root.bootstrap or default, json=json or root.json, debug=debug or root.debug
        )
        _guarded(session, lambda: function(session, **arguments))  # type: ignore[call-arg]

    parameters = [first, *own, *added]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _guarded(session: Session, work: Callable[[], None]) -> None:
    """Run the command; whatever goes wrong becomes one line on stderr and an exit code."""
    try:
        work()
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        hush_stdout()  # whoever read our output has seen enough
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if is_usage_error(error):
            raise
        if session.debug:
            traceback.print_exc()
        say_error(explain(error))
        raise typer.Exit(error.exit_code if isinstance(error, CommandError) else 1) from None


def say_error(line: str) -> None:
    say(f"penstock: {line}")


def say(text: str, *, end: str = "\n") -> None:
    """To stderr. Where nobody listens the work goes on, and the exit code tells."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        _hush(sys.stderr)


def hush_stdout() -> None:
    _hush(sys.stdout)


def _hush(stream: TextIO) -> None:
    """After a closed pipe: let the interpreter flush its buffers into nothing when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def is_usage_error(error: BaseException) -> bool:
    """Wrong use as the option parser sees it; typer exports only the most special of these classes."""
    return isinstance(error, typer.BadParameter.__mro__[1])
