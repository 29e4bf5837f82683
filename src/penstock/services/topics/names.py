"""Which names a topic may have, in Kafka's words; pure functions."""

import re
from collections.abc import Iterable

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError

NAME_CHARS_MAX = 249
# The name of Kafka's metadata log. There is no such topic here, and tools that look for it must not find another.
METADATA_LOG = "__cluster_metadata"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION with the reason."""
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in {".", ".."}:
        problem = f"'{name}' is not allowed"
    elif len(name) > NAME_CHARS_MAX:
        problem = f"the length of '{name}' is longer than the max allowed length {NAME_CHARS_MAX}"
    elif not _LEGAL.fullmatch(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def is_legal_topic_name(name: str) -> bool:
    return bool(0 < len(name) <= NAME_CHARS_MAX and _LEGAL.fullmatch(name)) and name not in {".", ".."}


class Collisions:
    """Names that differ only in `.` and `_`: metrics write both as `_`, so two such topics would share theirs."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {_unified(name): name for name in names if "." in name or "_" in name}

    def check(self, name: str) -> None:
        other = self._names.get(_unified(name))
        if other is not None and other != name:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
            )

    def add(self, name: str) -> None:
        if "." in name or "_" in name:
            self._names[_unified(name)] = name


def _unified(name: str) -> str:
    return name.replace(".", "_")
