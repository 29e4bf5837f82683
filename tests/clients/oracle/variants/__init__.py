"""The requests that are drawn: one module per family of APIs; importing them fills the register."""

from tests.clients.oracle.variants import (
    cluster,
    configs,
    fetching,
    group_admin,
    group_offsets,
    members,
    moving,
    offsets,
    producing,
    topics,
)

__all__ = [
    "cluster",
    "configs",
    "fetching",
    "group_admin",
    "group_offsets",
    "members",
    "moving",
    "offsets",
    "producing",
    "topics",
]
