"""Tombstones (30006), version 0: below which offset the log that is led here may lack some. Between brokers only.

A follower asks before it takes over a gap of a topic that does not compact. See `wire.peers.tombstones`.
"""

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.frontends.kafka.registry import Call, api
from penstock.replication.partition import Partition
from penstock.services.fetching.follower import check_replica
from penstock.services.list_offsets import check_exact_epoch
from penstock.services.services import Services
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.tombstones import TombstonesRequest, TombstonesResponse


@api(PeerApi.TOMBSTONES, versions=(0, 0), internal=True)
def handle(services: Services, request: TombstonesRequest, call: Call) -> TombstonesResponse:
    try:
        partition = _led(services, request)
        check_replica(partition, call.session.broker)
    except ApiError as error:
        return TombstonesResponse(error.code)
    log = partition.log
    if log.settings.compacts:
        # More of them go while it is copied: anywhere below what is committed.
        return TombstonesResponse(offset=max(log.cleaned.tombstones, partition.high_watermark))
    return TombstonesResponse(offset=log.cleaned.tombstones)


def _led(services: Services, request: TombstonesRequest) -> Partition:
    topic = services.table.by_id.get(request.topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = services.table.find(topic.name, request.partition)
    check_exact_epoch(partition, request.leader_epoch)
    return partition
