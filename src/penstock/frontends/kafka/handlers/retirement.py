"""Retirement (30005), version 0: what the controller asks leaders of retired partitions. Between brokers only.

The conversation is drawn in `wire.peers.retirement`. A leader may be asked for ten thousand partitions at once, and who
freezes one makes a file: others get their turn in between.
"""

import asyncio

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.turns import Turn
from penstock.frontends.kafka.registry import Call, api
from penstock.replication.introduction import is_registered
from penstock.services.services import Services
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.retirement import RetirementAnswer, RetirementRequest, RetirementResponse


@api(PeerApi.RETIREMENT, versions=(0, 0), internal=True)
async def handle(services: Services, request: RetirementRequest, call: Call) -> RetirementResponse:
    session = call.session
    if not is_registered(services.image, session.broker, session.broker_epoch):
        return RetirementResponse(ErrorCode.STALE_BROKER_EPOCH)
    partitions: list[tuple[int, int, RetirementAnswer | None]] = []
    turn = Turn(asyncio.get_running_loop().time)
    for index, leader_epoch in request.partitions:
        await turn.give_way()
        try:
            answer = services.retiring.answer(request.topic_id, index, leader_epoch, request.question)
        except ApiError as error:
            partitions.append((index, error.code, None))
        else:
            partitions.append((index, ErrorCode.NONE, answer))
    return RetirementResponse(partitions=partitions)
