"""AlterPartition (56), version 3: a leader asks the controller to change who is in sync. Between brokers only.

v3 names each member with its broker epoch, without which a replica that began anew could be taken for what it was.
"""

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.services import alter_partition
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.alter_partition import AlterPartitionRequest, AlterPartitionResponse


@api(ApiKey.ALTER_PARTITION, versions=(3, 3), internal=True)
async def handle(services: Services, request: AlterPartitionRequest, call: Call) -> AlterPartitionResponse:
    if request.broker_id != call.session.broker:
        return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return await alter_partition.answer(services.controller, request)
