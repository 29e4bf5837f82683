"""What waits for another try, in words."""

from typing import TYPE_CHECKING, Any

from penstock.core.text import count_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.client.admin.admin import Retries


def retries_text(retries: "Retries") -> str:
    return f"{count_text(retries.waiting, 'message')} of {retries.topic} waiting for another try, {due_text(retries)}"


def due_text(retries: "Retries") -> str:
    seconds = retries.due_seconds
    if seconds is None:
        return "when is not known"
    return f"the next is due in {_span(seconds)}" if seconds > 0 else f"due since {_span(-seconds)}"


def retries_json(retries: "Iterable[Retries]") -> list[dict[str, Any]]:
    return [
        {"topic": retry.topic, "retry_topic": retry.name, "waiting": retry.waiting, "due_ms": retry.due_ms}
        for retry in retries
    ]


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(1.0, seconds):.0f} s"
