"""What a running streaming query has read: the batches since the last look, and how far it is in its topics."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.spark.offsets import from_tree

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class QueryProgress:
    def __init__(self, query: "StreamingQuery") -> None:
        self._query = query
        self._batch = -1

    def new_batches(self) -> Iterator[dict[str, Any]]:
        """Batches with rows since the last call. Spark keeps a hundred: ask more often than it makes so many."""
        for progress in self._query.recentProgress:
            # While nothing arrives, Spark tells the number of the next batch again and again.
            if progress["batchId"] > self._batch and progress["numInputRows"] > 0:
                self._batch = progress["batchId"]
                yield progress

    def offsets(self) -> dict[str, dict[int, int]]:
        """By topic and partition: the least of its sources, where several read one topic."""
        progress: Any = self._query.lastProgress
        found: dict[str, dict[int, int]] = {}
        for source in [] if progress is None else progress["sources"]:
            tree = source.get("endOffset")
            try:
                tree = json.loads(tree) if isinstance(tree, str) else tree
                offsets = from_tree(tree)
            except (ValueError, TypeError, AttributeError):
                continue  # not a source of ours
            for at, offset in offsets.items():
                of_topic = found.setdefault(at.topic, {})
                of_topic[at.partition] = min(offset, of_topic.get(at.partition, offset))
        return found
