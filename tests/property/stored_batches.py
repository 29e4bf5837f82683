"""The batches of a log as far as a story tells them apart."""

from typing import NamedTuple

from tests.unit.storage.logs import read

from penstock.records.batch import read_header
from penstock.storage.log import Log


class Stored(NamedTuple):
    base: int
    last: int
    epoch: int
    producer: int
    crc: int


def stored_in(log: Log) -> list[Stored]:
    found, at = [], log.start_offset
    while at < log.end_offset and (data := read(log, at, size_max=1)):
        header = read_header(data)
        assert header.next_offset > at
        at = header.next_offset
        place = header.base_offset, header.last_offset
        found.append(Stored(*place, header.leader_epoch, header.producer_id, header.crc))
    return found
