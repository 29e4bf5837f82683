"""Any Produce and Fetch, as the generated codecs write them, and answers to them."""

from hypothesis import strategies as st

from penstock.services.fetching.found import Found
from penstock.wire.kafka import fetch, produce
from penstock.wire.kafka.generated import fetch as generated_fetch
from penstock.wire.kafka.generated import produce as generated_produce
from penstock.wire.kafka.leaders import Leader, NodeEndpoint

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=20)
ids = st.binary(min_size=16, max_size=16)
blobs = st.binary(max_size=200)
ports = st.integers(0, 65535)


class Blob:
    """Stands for records in a file: only its size goes into the encoding."""

    def __init__(self, data: bytes) -> None:
        self.data = data


leaders = st.builds(Leader, st.integers(-1, 3), int32)


@st.composite
def places(draw: st.DrawFn) -> dict[int, NodeEndpoint]:
    """Where the brokers are; some are nowhere."""
    found = draw(st.sets(st.integers(0, 3)))
    return {
        broker: NodeEndpoint(broker, draw(names), draw(ports), draw(st.none() | names)) for broker in found
    }


@st.composite
def produce_requests(draw: st.DrawFn, version: int) -> generated_produce.ProduceRequest:
    def topic() -> generated_produce.TopicProduceData:
        partitions = [
            generated_produce.PartitionProduceData(index=draw(int32), records=draw(st.none() | blobs))
            for _ in range(draw(st.integers(0, 3)))
        ]
        if version >= produce.TOPIC_IDS_SINCE:
            return generated_produce.TopicProduceData(topic_id=draw(ids), partition_data=partitions)
        return generated_produce.TopicProduceData(name=draw(names), partition_data=partitions)

    return generated_produce.ProduceRequest(
        transactional_id=draw(st.none() | names),
        acks=draw(int16),
        timeout_ms=draw(int32),
        topic_data=[topic() for _ in range(draw(st.integers(0, 3)))],
    )


@st.composite
def single_fetches(draw: st.DrawFn, version: int) -> generated_fetch.FetchRequest:
    """Of one partition, mostly without what is rare: the kind that the short cut is for."""
    request = draw(
        fetch_requests(version).filter(lambda drawn: any(topic.partitions for topic in drawn.topics))
    )
    request.topics = [next(topic for topic in request.topics if topic.partitions)]
    request.topics[0].partitions = request.topics[0].partitions[:1]
    if version < fetch.TOPIC_IDS_SINCE:
        request.topics[0].topic = draw(
            st.sampled_from(["", "a", "ä", "a" * 125, "a" * 126, "a" * 127, "a" * 300])
        )
    if draw(st.booleans()):
        request.rack_id, request.forgotten_topics_data = "", []
        request.replica_state = generated_fetch.ReplicaState()
    return request


@st.composite
def fetch_requests(draw: st.DrawFn, version: int) -> generated_fetch.FetchRequest:
    def key() -> dict[str, object]:
        if version >= fetch.TOPIC_IDS_SINCE:
            return {"topic_id": draw(ids)}
        return {"topic": draw(names)}

    def partition() -> generated_fetch.FetchPartition:
        return generated_fetch.FetchPartition(
            partition=draw(int32),
            current_leader_epoch=draw(int32) if version >= 9 else -1,
            fetch_offset=draw(int64),
            last_fetched_epoch=draw(int32) if version >= 12 else -1,
            log_start_offset=draw(int64) if version >= 5 else -1,
            partition_max_bytes=draw(int32),
        )

    some = st.integers(0, 3)
    request = generated_fetch.FetchRequest(
        max_wait_ms=draw(int32),
        min_bytes=draw(int32),
        max_bytes=draw(int32),
        isolation_level=draw(st.integers(0, 1)),
        topics=[
            generated_fetch.FetchTopic(**key(), partitions=[partition() for _ in range(draw(some))])
            for _ in range(draw(some))
        ],
    )
    if version < 15:
        request.replica_id = draw(int32)
    else:
        request.replica_state = generated_fetch.ReplicaState(
            replica_id=draw(int32), replica_epoch=draw(int64)
        )
    if version >= 7:
        request.session_id, request.session_epoch = draw(int32), draw(int32)
        request.forgotten_topics_data = [
            generated_fetch.ForgottenTopic(**key(), partitions=draw(st.lists(int32, max_size=3)))
            for _ in range(draw(some))
        ]
    if version >= 11:
        request.rack_id = draw(names)
    return request


@st.composite
def fetch_answers(draw: st.DrawFn, version: int) -> Found:
    data = draw(blobs)
    pair = st.tuples(int32, int64)
    flexible = version >= fetch.FLEXIBLE_SINCE
    return Found(
        draw(int32),
        draw(st.sampled_from([0, 6, 74]) | int16),
        draw(int64),
        draw(int64),
        draw(int64),
        Blob(data) if data else None,
        len(data),
        draw(st.none() | st.lists(st.tuples(int64, int64), max_size=3)),
        draw(int32) if version >= 11 else -1,
        draw(st.none() | pair) if flexible else None,
    )
