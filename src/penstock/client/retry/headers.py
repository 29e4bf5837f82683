"""What a message says about its failures, in headers, while it waits in a retry topic or lies in a dead-letter topic.

penstock-origin          topic, partition and offset where it was first stored: `orders/3/4711`
penstock-timestamp       its timestamp there, epoch milliseconds
penstock-failures        how often it has failed
penstock-due             when it may be tried again, epoch milliseconds
penstock-error           the last error, one line
penstock-history         every failure: a JSON list of {"at": epoch ms, "error": text}, the oldest left out when long

They stand behind the own headers of a message, from `penstock-origin` on. One that was read in a dead-letter topic and
fails again has those of its former life before them: they are its own now, and say nothing of this one.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

ORIGIN = "penstock-origin"
TIMESTAMP = "penstock-timestamp"
FAILURES = "penstock-failures"
DUE = "penstock-due"
ERROR = "penstock-error"
HISTORY = "penstock-history"
OURS = frozenset({ORIGIN, TIMESTAMP, FAILURES, DUE, ERROR, HISTORY})

# A message that failed a thousand times must not outgrow its topic's limit by its history.
_ERROR_CHARACTERS_MAX = 500
_HISTORY_ENTRIES_MAX = 20
# Anybody may write to a retry topic: a number of five thousand digits would raise.
_DIGITS_MAX = 18
_ORIGIN = re.compile(rf"([^/]+)/([0-9]{{1,{_DIGITS_MAX}}})/([0-9]{{1,{_DIGITS_MAX}}})")

Pairs = Sequence[tuple[str, bytes | None]]
Failures = tuple[int, list[dict[str, Any]]]  # how often, and each as the history has it


class First(NamedTuple):
    """Where and when a message was first stored."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None = None  # epoch milliseconds


def _begin(headers: Pairs) -> int:
    """Where ours begin."""
    return max((at for at, (name, _) in enumerate(headers) if name == ORIGIN), default=len(headers))


def _find(headers: Pairs, name: str) -> bytes | None:
    return next((value for key, value in reversed(headers[_begin(headers) :]) if key == name), None)


def _number(headers: Pairs, name: str) -> int | None:
    value = _find(headers, name)
    return int(value) if value is not None and value.isdigit() and len(value) <= _DIGITS_MAX else None


def failures(headers: Pairs) -> int:
    return _number(headers, FAILURES) or 0


def timestamp(headers: Pairs) -> int | None:
    """When it was first stored; older versions did not write it down."""
    return _number(headers, TIMESTAMP)


def due_ms(headers: Pairs) -> int | None:
    return _number(headers, DUE)


def origin(headers: Pairs) -> tuple[str, int, int] | None:
    """Topic, partition, offset; None when the message was never retried or the header is not ours."""
    found = _ORIGIN.fullmatch((_find(headers, ORIGIN) or b"").decode("utf-8", "replace"))
    return None if found is None else (found[1], int(found[2]), int(found[3]))


def origin_in(topic: str, headers: Pairs) -> tuple[str, int, int] | None:
    """The origin of a message that lies in `topic`: believed in a retry or dead-letter topic of that origin alone."""
    found = origin(headers)
    if found is None or not (topic.startswith(f"{found[0]}.") and topic.endswith((".retry", ".dlq"))):
        return None
    return found


def home(topic: str, headers: Pairs) -> str:
    """The topic that a message in `topic` was sent to by its producer: what came from a dead-letter topic came into
    that one from somewhere, too."""
    while (found := origin_in(topic, headers)) is not None:
        topic, headers = found[0], without_ours(headers)
    return topic


def error(headers: Pairs) -> str:
    return (_find(headers, ERROR) or b"").decode("utf-8", "replace")


def history(headers: Pairs) -> list[dict[str, Any]]:
    try:
        found = json.loads(_find(headers, HISTORY) or b"[]")
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def with_failure(
    own: Pairs,
    first: First,
    reason: str,
    now_ms: int,
    due_ms: int | None,
    earlier: Failures,
) -> list[tuple[str, str | bytes | None]]:
    """The headers for the message's next place: its own, and one failure more. Without `due_ms` it was the last.

    `earlier` is how often and how it failed before.
    """
    text = one_line(reason)
    count, before = earlier
    told = [*before, {"at": now_ms, "error": text}][-_HISTORY_ENTRIES_MAX:]
    out: list[tuple[str, str | bytes | None]] = [
        *own,
        *_told(first),
        (FAILURES, str(count + 1)),
        (ERROR, text),
        (HISTORY, _encodable(json.dumps(told, ensure_ascii=False))),
    ]
    if due_ms is not None:
        out.append((DUE, str(due_ms)))
    return out


def parked(own: Pairs, first: First, now_ms: int) -> list[tuple[str, str | bytes | None]]:
    """For a message that has not failed, but must wait behind an earlier one of its key."""
    return [*own, *_told(first), (FAILURES, "0"), (DUE, str(now_ms))]


def _told(first: First) -> list[tuple[str, str | bytes | None]]:
    """The origin stands first: ours begin there."""
    out: list[tuple[str, str | bytes | None]] = [(ORIGIN, f"{first.topic}/{first.partition}/{first.offset}")]
    if first.timestamp is not None:
        out.append((TIMESTAMP, str(first.timestamp)))
    return out


def without_ours(headers: Pairs) -> list[tuple[str, bytes | None]]:
    """The message's own."""
    return list(headers[: _begin(headers)])


def one_line(reason: str) -> str:
    text = " ".join(_encodable(reason).split())
    return text if len(text) <= _ERROR_CHARACTERS_MAX else text[: _ERROR_CHARACTERS_MAX - 1] + "…"


def _encodable(text: str) -> str:
    """Half a surrogate pair (JSON can hold one) becomes its escape, which JSON reads as it was: it has no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()
