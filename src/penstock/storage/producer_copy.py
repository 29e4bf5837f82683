"""What is known of one producer: its last batches, where they are, and what it may send next."""

from typing import NamedTuple


class AppendedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerCopy(NamedTuple):
    """What is known of a producer. Replaced, never changed: so a copy of all of them is a list, made at once."""

    producer_id: int
    epoch: int
    last_timestamp: int
    batches: tuple[AppendedBatch, ...]

    def lacks(self, known: "ProducerCopy") -> bool:
        """Whether that is more than it has; where only a coordinator wrote for it in its epoch, it has no batches."""
        if self.batches:
            return self.batches[-1].last_offset < known.batches[-1].last_offset
        return self.epoch <= known.epoch
