"""LogEnds (30007), version 0: how far the replicas here are, whether they lead or not. Between brokers only.

The controller asks when all replicas of a partition crashed, to find out who has the most. See `wire.peers.log_ends`.
"""

import asyncio

from penstock.core.errors import ApiError
from penstock.core.turns import Turn
from penstock.frontends.kafka.registry import Call, api
from penstock.services.list_offsets import log_end_of
from penstock.services.services import Services
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.log_ends import LogEndsRequest, LogEndsResponse, ToldEnd, WantedEnd


@api(PeerApi.LOG_ENDS, versions=(0, 0), internal=True)
async def handle(services: Services, request: LogEndsRequest, call: Call) -> LogEndsResponse:
    turn, told = Turn(asyncio.get_running_loop().time), []
    for wanted in request.wanted:
        await turn.give_way()
        told.append(_told(services, wanted))
    return LogEndsResponse(told)


def _told(services: Services, wanted: WantedEnd) -> ToldEnd:
    try:
        end = log_end_of(services.table, *wanted)
    except ApiError as error:
        return ToldEnd(error.code)
    return ToldEnd(0, end.epoch, end.offset, end.is_complete)
