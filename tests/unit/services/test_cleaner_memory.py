"""What a round of compaction takes of memory, and so of the loop's time."""

import pytest
from tests.unit.services.maintenance.test_cleaner import Bench, run

from penstock.storage.compaction import cleaning
from penstock.storage.compaction.offset_map import OffsetMap


def test_the_map_of_a_small_log_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is filled with zeros where the loop waits: with all the memory that is allowed, for a tenth of a second."""
    sizes: list[int] = []

    class Watched(OffsetMap):
        def __init__(self, memory_bytes: int, load_factor: float) -> None:
            sizes.append(memory_bytes)
            super().__init__(memory_bytes, load_factor)

    monkeypatch.setattr(cleaning, "OffsetMap", Watched)

    async def story(bench: Bench) -> None:
        await bench.write(bench.topic("small"), 60)
        assert await bench.cleaner.clean_next()
        assert 0 < max(sizes) < 1_000_000 < bench.config.log_cleaner_dedupe_buffer_size

    run(story)
