"""Whole record batches from and to a Kafka cluster: what librdkafka cannot give, for those who decode by the column."""

from penstock.client.raw.client import RawClient
from penstock.client.raw.errors import (
    BatchError,
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
    Heard,
    OffsetAt,
    Retirement,
    TopicInfo,
)
from penstock.client.raw.options import RawOptions
from penstock.client.raw.producing import RawProducer
from penstock.client.raw.stamping import Delivery, Producer
from penstock.client.topic_partition import TopicPartition

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AbortedRange",
    "BatchError",
    "BrokerError",
    "ConnectionLostError",
    "CorruptDataError",
    "Delivery",
    "Fetched",
    "Heard",
    "OffsetAt",
    "OffsetOutOfRangeError",
    "OptionError",
    "ProduceError",
    "Producer",
    "RawClient",
    "RawError",
    "RawOptions",
    "RawProducer",
    "Retirement",
    "TimedOutError",
    "TopicInfo",
    "TopicPartition",
    "TopicRecreatedError",
    "UnknownPartitionError",
    "UnknownTopicError",
    "UnreachableError",
    "UnsupportedError",
]
