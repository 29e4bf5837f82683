"""DescribeProducers (61), version 0: which idempotent producers a partition remembers, and where each of them is.

A relay (`records.relay`) is shown as a producer.
"""

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import LARGE_ANSWER_ENTRIES, PRODUCERS_DESCRIBED_MAX
from penstock.core.turns import give_way
from penstock.frontends.kafka.registry import Call, api
from penstock.frontends.kafka.repeats import partitions_without_repeats
from penstock.services.services import Services
from penstock.services.topics.names import check_topic_name
from penstock.storage.open_transactions import OpenTransactions
from penstock.storage.producer_copy import ProducerCopy, ProducerRow
from penstock.storage.relay_positions import names_in_snapshot
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def asks_for_many(services: Services, request: DescribeProducersRequest, call: Call) -> bool:
    known = 0
    for topic in request.topics:
        found = services.table.by_name.get(topic.name.encode())
        led = found.led if found else {}
        known += sum(len(led[index].log.producers) for index in topic.partition_indexes if index in led)
    return known > LARGE_ANSWER_ENTRIES


@api(
    ApiKey.DESCRIBE_PRODUCERS,
    versions=(0, 0),
    portions=(("topics", "partition_indexes"),),
    asks_for_much=asks_for_many,
)
async def handle(
    services: Services, request: DescribeProducersRequest, call: Call
) -> DescribeProducersResponse:
    wanted = partitions_without_repeats([(topic.name, topic.partition_indexes) for topic in request.topics])
    topics = []
    for name, indexes in wanted:
        answers = [await _partition(services, call, name, index) for index in indexes]
        topics.append(TopicResponse(name=name, partitions=answers))
    return DescribeProducersResponse(topics=topics)


async def _partition(services: Services, call: Call, topic: str, index: int) -> PartitionResponse:
    answer = PartitionResponse(partition_index=index)
    try:
        check_topic_name(topic)
        if topic not in services.image.topics:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
        known = services.table.find(topic, index).log.producers
        if call.told and call.told + len(known) > PRODUCERS_DESCRIBED_MAX:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"Producers are described up to {PRODUCERS_DESCRIBED_MAX} at once: ask for fewer partitions.",
            )
        call.told += len(known)
        answer.active_producers = await _producers(known.rows(), known.transactions)
    except ApiError as error:
        answer.error_code = error.code
        answer.error_message = error.message
    return answer


async def _producers(rows: list[ProducerRow], transactions: OpenTransactions) -> list[ProducerState]:
    found = []
    for number, row in enumerate(rows):
        await give_way(number)
        copy = ProducerCopy.of(row)
        if names_in_snapshot(copy):
            continue
        found.append(
            ProducerState(
                producer_id=copy.producer_id,
                producer_epoch=copy.epoch,
                last_sequence=copy.batches[-1].last_sequence if copy.batches else -1,
                last_timestamp=copy.last_timestamp,
                coordinator_epoch=transactions.coordinator_epoch(copy.producer_id),
                current_txn_start_offset=transactions.first_offset(copy.producer_id),
            )
        )
    return found
