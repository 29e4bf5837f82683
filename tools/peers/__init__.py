"""Brokers as real processes, behind one interface, for the oracle and the benchmarks."""

from tools.peers.apache_kafka import ApacheKafka
from tools.peers.penstock import PenstockPeer
from tools.peers.process import BrokerProcess, PeerError

__all__ = ["ApacheKafka", "BrokerProcess", "PeerError", "PenstockPeer"]
