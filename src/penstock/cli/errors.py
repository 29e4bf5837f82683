"""What a user sees when something fails: one line that says what to do next, and an exit code.

Exit 1 is a thing that failed, 2 is wrong use, 130 is Ctrl-C. A traceback appears only with `--debug`.
"""

from penstock.core.errors import PenstockError

FAILED = 1
WRONG_USE = 2
INTERRUPTED = 130


class CommandError(PenstockError):
    """A command that could not do its work; the message is the line the user sees."""

    exit_code = FAILED


class WrongUseError(CommandError):
    """The command was asked for something it cannot be asked for."""

    exit_code = WRONG_USE


def explain(error: Exception) -> str:
    """One line for any error that reaches the top of a command."""
    if isinstance(error, PenstockError):
        return _one_line(str(error))
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return _one_line(f"{where}{error.strerror or error}")
    what = _one_line(f"{type(error).__name__}: {error}")
    return f"{what} - this is a bug in penstock; run it again with --debug and report what it prints"


def _one_line(text: str) -> str:
    return " ".join(text.split())
