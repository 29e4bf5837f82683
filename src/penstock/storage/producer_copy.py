"""What is known of one producer: its last batches, where they are, and what it may send next."""

from typing import NamedTuple, Self

# As a log keeps it, with the fields of a `ProducerCopy`: of plain tuples of numbers the garbage collector keeps no
# list, and half a million producers would be so many objects that walking them takes half a second.
ProducerRow = tuple[int, int, int, tuple[tuple[int, int, int, int, int], ...]]


class AppendedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerCopy(NamedTuple):
    """What is known of a producer."""

    producer_id: int
    epoch: int
    last_timestamp: int
    batches: tuple[AppendedBatch, ...]

    @classmethod
    def of(cls, row: ProducerRow) -> Self:
        producer_id, epoch, last_timestamp, batches = row
        return cls(producer_id, epoch, last_timestamp, tuple(map(AppendedBatch._make, batches)))

    def row(self) -> ProducerRow:
        batches = tuple([(*batch,) for batch in self.batches])
        return (self.producer_id, self.epoch, self.last_timestamp, batches)

    def lacks(self, known: "ProducerCopy") -> bool:
        """Whether that is more than it has; where only a coordinator wrote for it in its epoch, it has no batches."""
        if self.batches:
            return self.batches[-1].last_offset < known.batches[-1].last_offset
        return self.epoch <= known.epoch
