"""The private API keys. Kafka counts up from 0 and is far from here; ApiVersions tells no client of these."""

from enum import IntEnum


class PeerApi(IntEnum):
    BROKER_CHALLENGE = 30000
    BROKER_INTRODUCTION = 30001
    ENVELOPE = 30002
    RELAY_DELIVER = 30003
    RELAY_POSITIONS = 30004
    RETIREMENT = 30005
    TOMBSTONES = 30006
    LOG_ENDS = 30007


# The module in this package that has its codec.
MODULES: dict[int, str] = {key: key.name.lower() for key in PeerApi}
