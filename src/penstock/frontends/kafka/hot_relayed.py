"""Produce from another broker, whose retired partition moves its records here."""

from penstock.core.errors import ApiError
from penstock.services.relay.inbox import RelayInbox, retired_route
from penstock.wire.kafka import produce as produce_codec


async def take_relayed(
    inbox: RelayInbox,
    sender: str,
    frame: bytearray,
    topics: list[produce_codec.TopicRecords],
    timeout_ms: int,
    version: int,
    correlation_id: int,
) -> list[object]:
    view = memoryview(frame)
    answered: list[produce_codec.TopicAnswer] = []
    for topic_id, partitions in topics:
        answers: list[produce_codec.PartitionAnswer] = []
        for number, start, end in partitions:
            try:
                inbox.check_sender(sender)
                batches = view[max(start, 0) : end]
                route = retired_route(topic_id, number, batches)
                first = await inbox.take(route, batches, timeout_ms / 1000)
                answers.append((number, 0, first, -1, -1, None))
            except ApiError as error:
                answers.append((number, error.code, -1, -1, -1, error.message))
        answered.append((topic_id, answers))
    return [produce_codec.encode_response(correlation_id, version, answered)]
