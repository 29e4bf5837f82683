"""Every option there is, and what a name that is none of them was probably meant to be.

Spark lower-cases the keys before the source sees them; the spelling here is the one for people.
"""

import difflib
from collections.abc import Iterable, Mapping

from penstock.spark.errors import OptionError

SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
STARTING = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")

READ = (
    *SUBSCRIPTIONS,
    *STARTING,
    *ENDING,
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "failOnDataLoss",
    "isolation.level",
)
WRITE = ("topic", "includeHeaders")
# Set by the archive alone: the leader epochs of what it wants, as {topic: {partition: [[epoch, end], ...]}}.
EPOCHS = "penstock.epochs"
# Likewise the holes that it knows of, as {topic: {partition: [[start, end], ...]}}.
HOLES = "penstock.holes"

# Settings of the machinery inside Spark's own source: queries that name them must run here unchanged.
WITHOUT_EFFECT = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
)
# What Spark itself adds to the options of a streaming write.
FROM_SPARK = ("checkpointLocation", "queryName", "outputMode")

KAFKA_PREFIX = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"

# Client settings that would contradict the source, and what to say instead.
REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "offsets are kept in the checkpoint, none are committed",
    "interceptor.classes": "there are no interceptors here",
    "key.deserializer": "keys are bytes: cast the column",
    "value.deserializer": "values are bytes: cast the column",
    "key.serializer": "keys are written as they are: cast the column to string or binary",
    "value.serializer": "values are written as they are: cast the column to string or binary",
}


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """An option that nobody reads is a mistake: say which one was probably meant."""
    spellings = {
        name.lower(): name for name in (*known, *WITHOUT_EFFECT, *FROM_SPARK, BOOTSTRAP, EPOCHS, HOLES)
    }
    for name in given:
        lowered = name.lower()
        if lowered == "path":
            raise OptionError(
                "load() and save() take no path here: name the topics with the option subscribe"
            )
        if lowered in spellings or lowered.startswith(KAFKA_PREFIX):
            continue
        near = difflib.get_close_matches(lowered, spellings, n=1, cutoff=0.5)
        hint = f": did you mean {spellings[near[0]]}?" if near else f"; known are {', '.join(known)}"
        raise OptionError(f"unknown option {name}{hint}")


def client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """What follows `kafka.`, for the client; the refused ones are explained."""
    found = {}
    for name, value in options.items():
        lowered = name.lower()
        if not lowered.startswith(KAFKA_PREFIX):
            continue
        setting = lowered.removeprefix(KAFKA_PREFIX)
        if setting in REFUSED:
            raise OptionError(f"the option {name} has no meaning here: {REFUSED[setting]}")
        found[setting] = value
    return found
