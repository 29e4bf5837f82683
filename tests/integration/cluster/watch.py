"""How many replicas partitions have, looked at again and again while they move."""

from typing import TYPE_CHECKING

from tests.integration.working import Working

if TYPE_CHECKING:
    from tests.integration.cluster.harness import Cluster

_EVERY_S = 0.02


class Watch(Working):
    """Of all topics. Notes the most replicas and the fewest in sync that any partition had, and what was strange."""

    def __init__(self, cluster: "Cluster") -> None:
        super().__init__()
        self._cluster = cluster
        self.replicas_max = 0
        self.in_sync_min = 1 << 30
        # Partitions that gave up a replica before everybody who stays was in sync.
        self.early: list[str] = []
        self._before: dict[tuple[str, int], tuple[set[int], set[int]]] = {}

    def _run(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            for topic in self._cluster.metadata().topics:
                for partition in topic.partitions:
                    place = str(topic.name), partition.partition_index
                    self._look(place, set(partition.replica_nodes), set(partition.isr_nodes))

    def _look(self, place: tuple[str, int], replicas: set[int], in_sync: set[int]) -> None:
        self.replicas_max = max(self.replicas_max, len(replicas))
        self.in_sync_min = min(self.in_sync_min, len(in_sync))
        had, _ = self._before.get(place, (replicas, in_sync))
        if had - replicas and not in_sync >= replicas:
            self.early.append(f"{place}: {sorted(had)} became {sorted(replicas)}, in sync {sorted(in_sync)}")
        self._before[place] = replicas, in_sync
