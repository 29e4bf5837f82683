"""What the front ends may ask of the broker: a plain bundle, put together by `server`."""

from dataclasses import dataclass

from penstock.replication.table import PartitionTable
from penstock.services.fetch import FetchService
from penstock.services.produce import ProduceService


@dataclass(slots=True)
class Services:
    table: PartitionTable
    produce: ProduceService
    fetch: FetchService
