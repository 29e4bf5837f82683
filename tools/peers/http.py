"""The little that readiness needs of HTTP."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from tools.peers.process import HOST

_TIMEOUT_S = 5


def get(port: int, path: str) -> bytes | None:
    """The answer, or None while nobody gives one."""
    try:
        with urlopen(f"http://{HOST}:{port}{path}", timeout=_TIMEOUT_S) as answer:
            return bytes(answer.read())
    except OSError:  # also what urllib raises for a status that is an error
        return None


def get_json(port: int, path: str) -> Any:
    """None also while a server that has just begun has a page for people there instead."""
    answer = get(port, path)
    try:
        return None if answer is None else json.loads(answer)
    except ValueError:
        return None


def answers(port: int) -> bool:
    """Whether somebody there speaks HTTP, whatever they think of the question."""
    try:
        with urlopen(f"http://{HOST}:{port}/", timeout=_TIMEOUT_S):
            return True
    except HTTPError as error:
        error.close()
        return True
    except OSError:
        return False
