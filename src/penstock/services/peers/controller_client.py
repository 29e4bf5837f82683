"""The way to the controller, wherever it is: here, or on the broker that the metadata names.

Requests that only the controller may carry out are forwarded as they came, so that clients need not know who it is.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.replication.peer import PeerError
from penstock.services import alter_partition
from penstock.services.peers.peers import Peers
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from penstock.controller.controller import Controller

_ALTER_PARTITION_VERSION = 3
_ANSWER_SECONDS = 5.0
_RETRY_SECONDS = 0.1


class ControllerClient:
    def __init__(self, peers: Peers, image: ClusterImage) -> None:
        self._peers = peers
        self._image = image
        self.controller: Controller | None = None

    @property
    def is_here(self) -> bool:
        return self.controller is not None and self.controller.is_active

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if self.controller is not None and self.controller.is_active:
            return await alter_partition.answer(self.controller, request)
        answer = await self._ask(ApiKey.ALTER_PARTITION, _ALTER_PARTITION_VERSION, request, _ANSWER_SECONDS)
        assert isinstance(answer, AlterPartitionResponse)
        return answer

    async def forward(self, api_key: int, version: int, request: Any, timeout_s: float) -> Any:
        """A client's request, carried out by the controller; ApiError when there is none for so long."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            left = deadline - asyncio.get_running_loop().time()
            try:
                return await self._ask(api_key, version, request, max(left, 0.001))
            except PeerError as error:
                if left <= 0:
                    raise ApiError(ErrorCode.NOT_CONTROLLER, str(error)) from error
            await asyncio.sleep(_RETRY_SECONDS)

    async def _ask(self, api_key: int, version: int, request: Any, timeout_s: float) -> Any:
        peer = self._peers.peer(self._image.controller, "controller")
        if peer is None:
            raise PeerError("there is no controller now")
        return await peer.ask(api_key, version, request, timeout_s)
