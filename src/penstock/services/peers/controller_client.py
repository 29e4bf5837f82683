"""The way to the controller, wherever it is: here, or on the broker that the metadata names.

Requests that only the controller may carry out are forwarded in an envelope that says whose they are, so that clients
need not know who it is.
Each is carried out once at most: one that left this broker and was not answered may have been carried out, and sent
again it would mean whatever has its name by then. A topic that was deleted and made again would be deleted again. So
the client is told that the outcome is open, and asks again itself if it wants to. What only looks is asked again.

What a leader asks for its partitions has a connection of its own: it must not wait for what clients ask.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import FORWARDED_REQUESTS_MAX
from penstock.core.session import Session
from penstock.replication.peer import NotSentError, PeerError
from penstock.services import alter_partition
from penstock.services.peers.peers import Peers
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.wire.kafka.messages import request_module
from penstock.wire.kafka.primitives import DecodeError
from penstock.wire.peers.envelope import EnvelopeRequest
from penstock.wire.peers.keys import PeerApi

if TYPE_CHECKING:
    from penstock.controller.controller import Controller

_ALTER_PARTITION_VERSION = 3
_ENVELOPE_VERSION = 0
_CLIENT_ID_MAX = 1000
_ANSWER_SECONDS = 5.0
_RETRY_SECONDS = 0.1
_LOOKS_ONLY = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.LIST_PARTITION_REASSIGNMENTS})


class ControllerClient:
    def __init__(self, peers: Peers, image: ClusterImage) -> None:
        self._peers = peers
        self._image = image
        self.controller: Controller | None = None
        self._forwarded = 0  # under way

    @property
    def is_here(self) -> bool:
        return self.controller is not None and self.controller.is_active

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if self.controller is not None and self.controller.is_active:
            return await alter_partition.answer(self.controller, request)
        answer = await self._ask(
            "alter-partition", ApiKey.ALTER_PARTITION, _ALTER_PARTITION_VERSION, request, _ANSWER_SECONDS
        )
        assert isinstance(answer, AlterPartitionResponse)
        return answer

    async def forward(
        self, api_key: int, version: int, request: Any, timeout_s: float, caller: Session | None = None
    ) -> Any:
        """The answer to a client's request; ApiError where nobody carried it out, within that time.

        Without `caller` it is this broker's own.
        """
        if self._forwarded >= FORWARDED_REQUESTS_MAX:
            raise ApiError(
                ErrorCode.NOT_CONTROLLER, f"{self._forwarded} requests wait for the controller already"
            )
        self._forwarded += 1
        try:
            caller = caller or Session("", "")
            return await self._forward(api_key, version, request, timeout_s, caller)
        finally:
            self._forwarded -= 1

    async def _forward(
        self, api_key: int, version: int, request: Any, timeout_s: float, caller: Session
    ) -> Any:
        loop, codec = asyncio.get_running_loop(), request_module(api_key)
        deadline = loop.time() + timeout_s
        body = codec.encode_request(request, version)
        envelope = EnvelopeRequest(
            *caller.principal,
            # What is no UTF-8 has grown since it was read; an envelope has no room for a client that tries.
            None if caller.client_id is None else caller.client_id[:_CLIENT_ID_MAX],
            caller.peer,
            caller.listener,
            api_key,
            version,
            body,
        )
        while True:
            try:
                left_s = deadline - loop.time()
                answer = await self._ask("forwarded", PeerApi.ENVELOPE, _ENVELOPE_VERSION, envelope, left_s)
                if answer.error_code == ErrorCode.NONE:
                    return codec.decode_response(answer.body, 0, version)[0]
                why = f"broker {self._image.controller} is not the controller, or not yet"
            except (PeerError, DecodeError) as error:
                if api_key not in _LOOKS_ONLY and not isinstance(error, NotSentError):
                    from penstock.services.peers.open_outcomes import outcome_open  # noqa: PLC0415 - six codecs

                    return outcome_open(api_key, request, str(error))
                why = str(error)
            if self.is_here or loop.time() + _RETRY_SECONDS >= deadline:
                raise ApiError(ErrorCode.NOT_CONTROLLER, why)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _ask(self, purpose: str, api_key: int, version: int, request: Any, timeout_s: float) -> Any:
        return await self._peers.ask(self._image.controller, purpose, api_key, version, request, timeout_s)
