"""UnregisterBroker (64), version 0: a broker that is gone will not come back, so others get its replicas at once.

One that runs is refused, and one that may have what nobody else has; Kafka forgets both.
"""

from penstock.core.errors import PenstockError
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.services.topics.service import as_api_error
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


@api(ApiKey.UNREGISTER_BROKER, versions=(0, 0), forwarded=True)
async def handle(
    services: Services, request: UnregisterBrokerRequest, call: Call
) -> UnregisterBrokerResponse:
    try:
        await services.reassignments.unregister(request.broker_id)
    except PenstockError as error:
        refusal = as_api_error(error)
        return UnregisterBrokerResponse(error_code=refusal.code, error_message=refusal.message)
    return UnregisterBrokerResponse(error_message=None)
