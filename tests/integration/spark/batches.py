"""A stream whose batches a test can look at."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

if TYPE_CHECKING:
    from collections.abc import Callable

ENDS_S = 120


class Batches:
    """Runs a stream into a list of batches; every run goes on from the same checkpoint."""

    def __init__(self, frame: DataFrame, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self._frame = frame
        # Batch id and its values, in the order Spark ran them; a replayed batch is there twice. Spark replays the
        # last one whenever a query is stopped between the batch and the note in the checkpoint that it is done.
        self.seen: list[tuple[int, list[int]]] = []
        self.before_batch: Callable[[int], None] = lambda _: None

    def start(self, **trigger: object) -> StreamingQuery:
        writer = self._frame.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()  # type: ignore[arg-type]

    def run(self) -> None:
        """Everything there is now."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(ENDS_S), "the stream does not end"

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        self.before_batch(batch_id)
        rows = frame.select("value").collect()
        self.seen.append((batch_id, sorted(int(row.value) for row in rows)))

    @property
    def values(self) -> list[int]:
        """Of all batches, each counted once, as `foreachBatch` leaves it to its user to do."""
        return sorted(value for values in dict(self.seen).values() for value in values)

    @property
    def sizes(self) -> list[int]:
        return [len(values) for values in dict(self.seen).values()]

    def rewind(self, batch_id: int) -> None:
        """As if the driver had died after this batch was planned and before it was recorded as done."""
        for folder, first in (("offsets", batch_id + 1), ("commits", batch_id)):
            for file in (self.checkpoint / folder).iterdir():
                number = file.name.removeprefix(".").removesuffix(".crc")
                if number.isdecimal() and int(number) >= first:
                    file.unlink()

    def planned(self, batch_id: int) -> dict[str, object]:
        """The offsets that the checkpoint has for a batch."""
        lines = (self.checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
        found: dict[str, object] = json.loads(lines[2])
        return found
