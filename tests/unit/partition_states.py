"""Partition states as a test would have them."""

from collections.abc import Mapping

from penstock.coordination.metadata import MetadataStore
from penstock.coordination.nodes import PartitionState


async def write_states(metadata: MetadataStore, states: Mapping[tuple[str, int], PartitionState]) -> None:
    """By topic and number, each on top of the partition epoch it carries."""
    await metadata.rewrite_partitions(
        lambda image: (
            {(image.topics[name].id, number): state for (name, number), state in states.items()},
            (),
        )
    )
