"""Fetch: one partition's record batches from an offset to an end, whole and in order.

The request for what comes next is sent before the present answer is handed out, so the broker works and the network
fills while the caller decodes. Whatever goes wrong on the way, `position` alone says what is still to come: it moves
when an answer is taken, so a retry neither repeats nor skips a batch. The topic's id is held on to: a topic of the
same name that was made anew is another one.
"""

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.client.raw.batches import NotABatchError, OldFormatError, Whole, whole_batches
from penstock.client.raw.cluster import Cluster, Route
from penstock.client.raw.errors import (
    BrokerError,
    ConnectionLostError,
    CorruptDataError,
    OffsetOutOfRangeError,
    RawError,
    TimedOutError,
    TopicRecreatedError,
    UnsupportedError,
)
from penstock.client.raw.model import EARLIEST, LATEST, AbortedRange, Fetched
from penstock.client.raw.offsets import list_offsets
from penstock.client.topic_partition import TopicPartition
from penstock.core import limits
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.fetch import TOPIC_IDS_SINCE
from penstock.wire.kafka.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from penstock.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from penstock.client.raw.link import Link

# Before v4 there were no record batches.
_VERSION_MIN = 4
# A broker that finds its data damaged may have a good copy a moment later (a moved leader), not for ever.
_CORRUPT_TRIES = 3
# The same for an offset that is in range as soon as we look.
_RANGE_TRIES = 3


def fetch(
    cluster: Cluster,
    at: TopicPartition,
    start: int,
    end: int,
    *,
    committed: bool,
    topic_id: uuid.UUID | None = None,
) -> Iterator[Fetched]:
    stream = _Stream(cluster, at, start, end, committed=committed, topic_id=topic_id)
    try:
        while (fetched := stream.next()) is not None:
            yield fetched
    finally:
        stream.drop()


def serves(cluster: Cluster, at: TopicPartition, offset: int) -> bool:
    """Asks for records at an offset, and looks at nothing but whether it is refused."""
    stream = _Stream(cluster, at, offset, offset + 1, committed=False, topic_id=None)
    try:
        return stream.is_served()
    finally:
        stream.drop()


class _Stream:
    def __init__(
        self,
        cluster: Cluster,
        at: TopicPartition,
        start: int,
        end: int,
        *,
        committed: bool,
        topic_id: uuid.UUID | None,
    ) -> None:
        self._cluster = cluster
        self._at = at
        self._position = start
        self._end = end
        self._committed = committed
        self._topic_id = topic_id
        self._bytes = cluster.options.fetch_bytes
        self._asked: tuple[Link, int] | None = None
        self._budget = cluster.budget(f"reading {at} at offset {start}")
        self._corrupt = 0
        self._out_of_range = 0

    def next(self) -> Fetched | None:
        """The next batches, however often that must be tried; None at the end."""
        self._budget.renew()
        while self._position < self._end:
            try:
                answer = self._answer()
                fetched = self._take(answer)
            except RawError as error:
                self._cluster.doubt((self._at,))
                self._budget.pause(error)
                continue
            if fetched is not None:
                self._send_ahead()
                return fetched
        return None

    def is_served(self) -> bool:
        while True:
            try:
                answer = self._answer()
                if answer.error_code:
                    self._refused(answer.error_code)
            except OffsetOutOfRangeError:
                return False
            except RawError as error:
                self._cluster.doubt((self._at,))
                self._budget.pause(error)
            else:
                return True

    def drop(self) -> None:
        """No more of it is wanted."""
        if self._asked is not None:
            link, ticket = self._asked
            self._asked = None
            link.forget(ticket)

    # -- asking -------------------------------------------------------------------------------------------------

    def _answer(self) -> PartitionData:
        if self._asked is None:
            self._ask()
        assert self._asked is not None
        link, ticket = self._asked
        self._asked = None
        options = self._cluster.options
        # The broker may take its time where there is nothing to send.
        patience_s = (options.request_timeout_ms + options.fetch_wait_ms) / 1000
        answer: FetchResponse = link.response(ticket, patience_s)
        if answer.error_code:
            raise BrokerError(answer.error_code, str(self._at))
        for topic in answer.responses:
            for partition in topic.partitions:
                return partition
        raise ConnectionLostError(f"the broker at {link} left {self._at} out of its answer")

    def _ask(self) -> None:
        route = self._cluster.route(self._at, self._budget)
        if self._topic_id is None:
            self._topic_id = route.topic_id
        elif route.topic_id is not None and route.topic_id != self._topic_id:
            raise TopicRecreatedError(self._at.topic, self._topic_id, route.topic_id)
        by_name = TOPIC_IDS_SINCE - 1 if route.topic_id is None else 0x7FFF
        version = route.link.version(ApiKey.FETCH, at_least=_VERSION_MIN, at_most=by_name)
        self._asked = route.link, route.link.send(ApiKey.FETCH, version, self._request(route))

    def _request(self, route: Route) -> FetchRequest:
        options = self._cluster.options
        partition = FetchPartition(
            partition=self._at.partition,
            current_leader_epoch=route.leader_epoch,
            fetch_offset=self._position,
            partition_max_bytes=self._bytes,
        )
        topic_id = ZERO_UUID if route.topic_id is None else route.topic_id.bytes
        return FetchRequest(
            max_wait_ms=options.fetch_wait_ms,
            min_bytes=options.fetch_min_bytes,
            max_bytes=self._bytes,
            isolation_level=int(self._committed),
            topics=[FetchTopic(topic=self._at.topic, topic_id=topic_id, partitions=[partition])],
        )

    def _send_ahead(self) -> None:
        if self._position >= self._end:
            return
        try:
            self._ask()
        except RawError:
            # What was read is good, and comes first; the trouble comes back with the next call.
            self._asked = None

    # -- answers ------------------------------------------------------------------------------------------------

    def _take(self, answer: PartitionData) -> Fetched | None:
        """Move on behind the batches of a good answer; None where it has none to hand out."""
        if answer.error_code:
            self._refused(answer.error_code)
        records = memoryview(answer.records or b"")
        whole = self._whole(records)
        if not whole.size_bytes:
            self._nothing(whole, answer)
            return None
        if whole.next_offset <= self._position:
            raise CorruptDataError(self._at, self._position, f"a batch that ends before {whole.next_offset}")
        self._position = self._end if whole.at_end else whole.next_offset
        self._bytes = self._cluster.options.fetch_bytes
        self._corrupt = self._out_of_range = 0
        aborted = tuple(
            AbortedRange(transaction.producer_id, transaction.first_offset)
            for transaction in answer.aborted_transactions or ()
        )
        return Fetched(
            records[: whole.size_bytes],
            aborted if self._committed else (),
            answer.log_start_offset,
            answer.high_watermark,
            answer.last_stable_offset,
        )

    def _whole(self, records: memoryview) -> Whole:
        try:
            return whole_batches(records, self._end)
        except OldFormatError as error:
            raise UnsupportedError(
                f"{self._at} has {error} at offset {self._position}: copy the topic with a newer producer"
            ) from error
        except NotABatchError as error:
            raise CorruptDataError(self._at, self._position, str(error)) from error

    def _nothing(self, whole: Whole, answer: PartitionData) -> None:
        if whole.at_end:
            # The records up to the end were compacted away.
            self._position = self._end
            return
        if whole.needed_bytes:
            # A broker that does not send a first batch whole when it is larger than asked for.
            if whole.needed_bytes <= self._bytes or whole.needed_bytes > limits.RESPONSE_BYTES_MAX:
                why = f"a batch of {whole.needed_bytes} bytes that never comes whole"
                raise CorruptDataError(self._at, self._position, why)
            self._bytes = whole.needed_bytes
            return
        if not self._budget.left_s:
            limit = answer.last_stable_offset if self._committed else answer.high_watermark
            raise TimedOutError(
                f"{self._at} can be read to offset {limit} only, {self._end} was asked for and "
                f"nothing came after {self._position}: ask for less, or wait for its producers"
            )

    def _refused(self, code: int) -> None:
        """Raises what the error code of an answer means."""
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range += 1
            ends = [
                list_offsets(self._cluster, {self._at: which}, committed=False)[self._at].offset
                for which in (EARLIEST, LATEST)
            ]
            if not ends[0] <= self._position <= ends[1] or self._out_of_range >= _RANGE_TRIES:
                raise OffsetOutOfRangeError(self._at, self._position, *ends)
            # A moved leader, or a log start that was just being moved.
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, str(self._at))
        if code == ErrorCode.CORRUPT_MESSAGE:
            self._corrupt += 1
            if self._corrupt >= _CORRUPT_TRIES:
                raise CorruptDataError(self._at, self._position, "the broker finds its own copy damaged")
        raise BrokerError(code, str(self._at))
