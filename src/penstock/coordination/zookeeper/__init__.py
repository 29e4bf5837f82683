"""Coordination by Apache ZooKeeper, through kazoo: the extra cluster."""

from penstock.coordination.zookeeper.address import Address, AddressError
from penstock.coordination.zookeeper.kazoo_errors import AccessDeniedError
from penstock.coordination.zookeeper.session import ZooKeeperTree
from penstock.coordination.zookeeper.store import ZooKeeperStore

__all__ = ["AccessDeniedError", "Address", "AddressError", "ZooKeeperStore", "ZooKeeperTree"]
