"""The requests that are drawn: one module per family of APIs; importing them fills the register."""

from tests.clients.oracle.variants import cluster, configs, fetching, offsets, producing, topics

__all__ = ["cluster", "configs", "fetching", "offsets", "producing", "topics"]
