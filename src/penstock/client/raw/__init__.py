"""Whole record batches from and to a Kafka cluster: what librdkafka cannot give, for those who decode by the column."""

from penstock.client.raw.client import RawClient
from penstock.client.raw.errors import (
    BrokerError,
    ConnectionLostError,
    CorruptDataError,
    OffsetOutOfRangeError,
    OptionError,
    ProduceError,
    RawError,
    TimedOutError,
    TopicRecreatedError,
    UnknownPartitionError,
    UnknownTopicError,
    UnreachableError,
    UnsupportedError,
)
from penstock.client.raw.model import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    AbortedRange,
    Fetched,
    OffsetAt,
    TopicInfo,
    TopicPartition,
)
from penstock.client.raw.options import RawOptions

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AbortedRange",
    "BrokerError",
    "ConnectionLostError",
    "CorruptDataError",
    "Fetched",
    "OffsetAt",
    "OffsetOutOfRangeError",
    "OptionError",
    "ProduceError",
    "RawClient",
    "RawError",
    "RawOptions",
    "TimedOutError",
    "TopicInfo",
    "TopicPartition",
    "TopicRecreatedError",
    "UnknownPartitionError",
    "UnknownTopicError",
    "UnreachableError",
    "UnsupportedError",
]
