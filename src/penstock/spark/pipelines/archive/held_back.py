"""How far retention was held back for files that are missing, in the lake: the next run must know that it was us.

A broker lowers the progress of a log that lost its end. Where leader epochs do not tell, that is all there is to go
by, and a progress that was held back would look the same: everything behind it would be archived again.
"""

import json
from collections.abc import Mapping
from contextlib import suppress

from penstock.client.raw import TopicPartition
from penstock.spark.pipelines.archive.lake import HOME, Lake

HELD_BACK_FILE = f"{HOME}/held_back.json"


class HeldBack:
    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.offsets = self._read()

    def _read(self) -> dict[TopicPartition, int]:
        # Whoever cannot read it archives again what is archived, and loses nothing.
        with suppress(FileNotFoundError, ValueError, AttributeError):
            tree = json.loads(self._lake.read(HELD_BACK_FILE))
            return {
                TopicPartition(topic, int(at)): int(offset)
                for topic, offsets in tree.items()
                for at, offset in offsets.items()
            }
        return {}

    def note(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Before it is told; and what is no longer held back, only behind that."""
        if offsets == self.offsets:
            return
        tree: dict[str, dict[str, int]] = {}
        for at, offset in sorted(offsets.items()):
            tree.setdefault(at.topic, {})[str(at.partition)] = offset
        self._lake.replace(HELD_BACK_FILE, json.dumps(tree).encode())
        self.offsets = dict(offsets)
