"""The one way into a partition: check, open where the topic needs it, stamp, append.

    what clients send     led (topic, leadership, acks) ─▶ opened, for topics that need it ─▶ append (size, stamps)
    what we made          append_own: as it is, whatever the topic's settings say
    what a relay moves    has rules of its own (`relay.inbox`)

All of them go on in `acknowledging`: who is told when it is committed. Nothing here knows how a batch came.
"""

from collections.abc import Callable
from functools import partial

from penstock.config.topic import TopicConfig
from penstock.core.clock import Clock
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.records.batch import (
    APPEND_TIME_MASK,
    TRANSACTIONAL_MASK,
    UnreadableBatch,
    check_timestamps,
    clear_append_time,
    read_header,
    stamp_append_time,
    validate_batch,
)
from penstock.records.builder import recompress
from penstock.records.compression import WHOLE, Codec, OpeningLimit
from penstock.records.reader import KeylessRecords, verify_records
from penstock.replication.partition import Partition
from penstock.replication.table import Topic
from penstock.replication.transactions import check_transactional
from penstock.services.acknowledging import check_acks
from penstock.services.batch_opening import Openings, never
from penstock.services.transactions.admission import Admission

NO_APPEND_TIME = -1
# Refused records that an answer lists one by one: enough to find the mistake, far from as large as the request.
RECORD_ERRORS_MAX = 1000
# Attributes that are looked at more closely; the bits of nearly every batch are just its codec.
_RARE_ATTRIBUTES = APPEND_TIME_MASK | TRANSACTIONAL_MASK


class RefusedRecords(ApiError):  # noqa: N818 - named for what it is on the wire
    """A batch refused for some of its records: clients are told which, in Kafka's words."""

    def __init__(self, records: list[tuple[int, str]], total: int) -> None:
        shown = ", ".join(f"RecordError(batchIndex={at}, message='{why}')" for at, why in records[:3])
        super().__init__(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {total} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]",
        )
        self.records = records

    @classmethod
    def without_key(cls, partition: str, indexes: list[int]) -> "RefusedRecords":
        why = f"Compacted topic cannot accept message without key in topic partition {partition}"
        return cls([(index, why) for index in indexes[:RECORD_ERRORS_MAX]], len(indexes))


class Writer:
    def __init__(self, clock: Clock, openings: Openings) -> None:
        self._clock = clock
        self._openings = openings
        self._held: dict[Partition, None] = {}  # with batches that `write_held` has still to write
        self.batches = 0  # that clients sent,
        self.records = 0  # and what was in them

    def led(self, topic: Topic, number: int, acks: int) -> Partition:
        """Where a client's batch would go; ApiError where none may, or could not be acknowledged as it asks for."""
        if topic.is_internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic.name}")
        partition = topic.led.get(number)
        if partition is None:
            raise ApiError(topic.missing(number))
        if partition.leading is not None or acks > 1:
            check_acks(partition, acks)
        return partition

    def append(
        self,
        topic: Topic,
        partition: Partition,
        batch: memoryview,
        *,
        hold: bool,
        admission: Admission | None = None,
    ) -> tuple[int, int, int]:
        """Store one batch; returns (first offset, last offset, append time or -1). Raises ApiError.

        With `hold` it may wait in memory for others behind it: `write_held` is called before anyone is answered.
        Transactional batches need an `admission`.
        """
        config = topic.config
        header = validate_batch(batch, size_bytes_max=config.max_message_bytes)
        size = header.batch_length + 12
        if len(batch) != size:
            batch = batch[:size]
        if size > config.segment_bytes:
            raise UnreadableBatch(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the batch has {size} bytes, a segment holds {config.segment_bytes}",
            )
        if header.attributes & _RARE_ATTRIBUTES:
            if header.attributes & TRANSACTIONAL_MASK:
                if admission is None:
                    raise UnreadableBatch(
                        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                        "a transactional batch outside of a transaction",
                    )
                check_transactional(partition, header, admission.guard((topic.name, partition.index)))
            clear_append_time(batch, 0)
            header = read_header(batch)
        now_ms = self._clock.now_ms()
        append_time = NO_APPEND_TIME
        if topic.uses_append_time:
            append_time = now_ms
            stamp_append_time(batch, 0, now_ms)
            header = read_header(batch)
        else:
            check_timestamps(header, now_ms, config.timestamp_before_max_ms, config.timestamp_after_max_ms)
        first, last = partition.append(batch, header, now_ms, hold=hold)
        if hold:
            self._held[partition] = None
        self.batches += 1
        self.records += header.record_count
        return first, last, append_time

    def append_own(self, partition: Partition, batch: bytearray) -> int:
        """Store what this broker made; returns the last offset. Raises ApiError."""
        return partition.append(memoryview(batch), read_header(batch), self._clock.now_ms())[1]

    def write_held(self) -> None:
        """Write the batches that were held back while requests came in one after the other.

        Called before any answer leaves. ApiError: some could not be written, so no answer may.
        """
        if self._held:
            held, self._held = self._held, {}
            failure: ApiError | None = None
            for partition in held:
                try:
                    partition.write_held()
                except ApiError as error:
                    failure = error
                except StorageError as error:  # a limit of its readers could not be placed; others go on
                    failure = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            if failure is not None:
                raise failure

    async def opened(
        self, topic: Topic, number: int, batch: memoryview, is_lost: Callable[[], bool] = never
    ) -> memoryview:
        """The batch as the topic wants it, in its turn and in a thread; it must stay where it is until then.

        ClientGoneError: when its turn came, whoever sent it `is_lost`.
        """
        if not topic.opens_batches or topic.is_internal or number not in topic.led:
            return batch
        return await self._openings.run(partial(self.open_batch, topic, number, batch), is_lost)

    def open_batch(
        self, topic: Topic, index: int, batch: memoryview, limit: OpeningLimit = WHOLE
    ) -> memoryview:
        """The batch as the topic wants it (`compression.type`, keys where it compacts). For a thread."""
        try:
            return self._opened(topic.config, batch, limit)
        except KeylessRecords as error:
            raise RefusedRecords.without_key(f"{topic.name}-{index}", error.indexes) from error

    def _opened(self, config: TopicConfig, batch: memoryview, limit: OpeningLimit) -> memoryview:
        header = validate_batch(batch, size_bytes_max=config.max_message_bytes)
        limit.check_count(header.record_count)
        batch = batch[: header.batch_length + 12]
        wanted = _codec_of(config.compression_type, header.codec)
        if wanted == header.codec:
            verify_records(batch, key_required=config.compacts, limit_bytes=limit.size_bytes)
            return batch
        anew = recompress(
            batch,
            wanted,
            _level_of(config, wanted),
            key_required=config.compacts,
            limit_bytes=limit.size_bytes,
        )
        if len(anew) > config.max_message_bytes:
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE)
        return memoryview(anew)


def _codec_of(compression_type: str, sent: int) -> int:
    if compression_type == "producer":
        return sent
    return Codec.NONE if compression_type == "uncompressed" else Codec[compression_type.upper()]


def _level_of(config: TopicConfig, codec: int) -> int | None:
    return {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(Codec(codec))
