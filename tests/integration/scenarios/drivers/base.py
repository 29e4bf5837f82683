"""What the Python drivers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

CONSUME_DEADLINE_S = 60.0
REQUEST_TIMEOUT_MS = 30_000


class PythonDriver:
    """Dispatches an operation to the method of the same name."""

    name: ClassVar[str]
    gaps: ClassVar[Mapping[str, str]]

    def run(self, op: str, bootstrap: str, args: dict[str, Any]) -> Any:
        return getattr(self, op)(bootstrap, **args)

    def close(self) -> None:
        """End what the driver keeps open between operations."""


def error(code: int) -> dict[str, int]:
    return {"error": code}
