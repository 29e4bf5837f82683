"""What a message says about its failures, in headers, while it waits in a retry topic or lies in a dead-letter topic.

penstock-origin          topic, partition and offset where it was first stored: `orders/3/4711`
penstock-failures        how often it has failed
penstock-due             when it may be tried again, epoch milliseconds
penstock-error           the last error, one line
penstock-history         every failure: a JSON list of {"at": epoch ms, "error": text}, the oldest left out when long
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

ORIGIN = "penstock-origin"
FAILURES = "penstock-failures"
DUE = "penstock-due"
ERROR = "penstock-error"
HISTORY = "penstock-history"
OURS = frozenset({ORIGIN, FAILURES, DUE, ERROR, HISTORY})

# A message that failed a thousand times must not outgrow its topic's limit by its history.
_ERROR_CHARACTERS_MAX = 500
_HISTORY_ENTRIES_MAX = 20

Pairs = Sequence[tuple[str, bytes | None]]
Failures = tuple[int, list[dict[str, Any]]]  # how often, and each as the history has it


def _find(headers: Pairs, name: str) -> bytes | None:
    return next((value for key, value in reversed(headers) if key == name), None)


def _number(headers: Pairs, name: str) -> int | None:
    value = _find(headers, name)
    return int(value) if value is not None and value.isdigit() else None


def failures(headers: Pairs) -> int:
    return _number(headers, FAILURES) or 0


def due_ms(headers: Pairs) -> int | None:
    return _number(headers, DUE)


def origin(headers: Pairs) -> tuple[str, int, int] | None:
    """Topic, partition, offset; None when the message was never retried or the header is not ours."""
    text = (_find(headers, ORIGIN) or b"").decode("utf-8", "replace")
    topic, _, rest = text.partition("/")
    partition, _, offset = rest.partition("/")
    if not (topic and partition.isdecimal() and offset.isdecimal()):
        return None
    return topic, int(partition), int(offset)


def origin_in(topic: str, headers: Pairs) -> tuple[str, int, int] | None:
    """The origin of a message that lies in `topic`: believed in a retry or dead-letter topic of that origin alone."""
    found = origin(headers)
    if found is None or not (topic.startswith(f"{found[0]}.") and topic.endswith((".retry", ".dlq"))):
        return None
    return found


def error(headers: Pairs) -> str:
    return (_find(headers, ERROR) or b"").decode("utf-8", "replace")


def history(headers: Pairs) -> list[dict[str, Any]]:
    try:
        found = json.loads(_find(headers, HISTORY) or b"[]")
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def with_failure(
    headers: Pairs,
    place: tuple[str, int, int],
    reason: str,
    now_ms: int,
    due_ms: int | None,
    earlier: Failures,
) -> list[tuple[str, str | bytes | None]]:
    """The headers for the message's next place: its own, and one failure more. Without `due_ms` it was the last.

    `place` is where it was first stored, `earlier` how often and how it failed before.
    """
    text = one_line(reason)
    count, before = earlier
    told = [*before, {"at": now_ms, "error": text}][-_HISTORY_ENTRIES_MAX:]
    topic, partition, offset = place
    out: list[tuple[str, str | bytes | None]] = list(without_ours(headers))
    out += [
        (ORIGIN, f"{topic}/{partition}/{offset}"),
        (FAILURES, str(count + 1)),
        (ERROR, text),
        (HISTORY, json.dumps(told, ensure_ascii=False)),
    ]
    if due_ms is not None:
        out.append((DUE, str(due_ms)))
    return out


def parked(headers: Pairs, place: tuple[str, int, int], now_ms: int) -> list[tuple[str, str | bytes | None]]:
    """For a message that has not failed, but must wait behind an earlier one of its key."""
    topic, partition, offset = place
    return [
        *without_ours(headers),
        (ORIGIN, f"{topic}/{partition}/{offset}"),
        (FAILURES, "0"),
        (DUE, str(now_ms)),
    ]


def without_ours(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    return [(name, value) for name, value in headers if name not in OURS]


def one_line(reason: str) -> str:
    text = " ".join(reason.split())
    return text if len(text) <= _ERROR_CHARACTERS_MAX else text[: _ERROR_CHARACTERS_MAX - 1] + "…"
