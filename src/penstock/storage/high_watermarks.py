"""How much of each replicated log was known to be committed when it was last written down.

A hint, and a safe one: what was committed stays so. Without it a broker that leads alone after a restart could show
readers nothing until the others are back.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from penstock.core.errors import StorageError
from penstock.core.files import Files

_FILE = "high-watermarks.json"
NONE = 0


class HighWatermarks:
    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / _FILE
        self._known: dict[str, int] | None = None

    def of(self, topic_id: bytes, partition: int) -> int:
        if self._known is None:
            self._known = self._load()
        return self._known.get(_key(topic_id, partition), NONE)

    def _load(self) -> dict[str, int]:
        try:
            fields = json.loads(self._files.read(self._path))
            return {str(name): int(offset) for name, offset in fields.items()}
        except (FileNotFoundError, StorageError, ValueError, TypeError, AttributeError):
            return {}

    def save(self, marks: Mapping[tuple[bytes, int], int]) -> None:
        """Blocks."""
        fields = {_key(*place): offset for place, offset in marks.items()}
        self._files.write_atomically(self._path, json.dumps(fields).encode() + b"\n")


def _key(topic_id: bytes, partition: int) -> str:
    return f"{topic_id.hex()}-{partition}"
