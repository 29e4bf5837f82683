"""What the commit of a retry partition notes of tries under way: those of the message at its offset."""

import json
from typing import Any

Tries = dict[str, Any]  # {"offset": …, "failures": …, "due": epoch ms, "history": […]}
_NOTE_BYTES_MAX = 4000  # commit metadata is small: Kafka takes 4096 bytes


def note(tries: Tries, history: list[Any]) -> str:
    """What is committed of tries; of their history as much as there is room for, the latest rather than the first."""
    while True:
        text = json.dumps({**tries, "history": history})
        if len(text) <= _NOTE_BYTES_MAX or not history:
            return text
        history = history[1:]


def tries_of(offset: int, metadata: str | None) -> Tries | None:
    """What an earlier owner noted with its commit."""
    try:
        found = json.loads(metadata or "null")
        tries = {name: int(found[name]) for name in ("offset", "failures", "due")}
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if tries["offset"] != offset:
        return None
    history = found.get("history")
    return {**tries, "history": history if isinstance(history, list) else []}
