"""ConsumerGroupHeartbeat (68), versions 0-1: how members of next-generation groups (KIP-848) join and stay.

v1 adds regular expressions and ids that members choose themselves. Not served yet: every heartbeat is answered with
UNSUPPORTED_VERSION, as by Kafka where `group.version` is 0. It is advertised for that refusal alone: where it is
missing librdkafka looks for another coordinator for ever; where it is refused librdkafka and Java stop, and franz-go
goes on as a member of a classic group.
"""

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.services.refusals import NEXT_GENERATION_GROUPS
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


@api(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1))
def handle(
    services: Services, request: ConsumerGroupHeartbeatRequest, call: Call
) -> ConsumerGroupHeartbeatResponse:
    services.refusals.tell(
        call.client_id, call.session.peer, "ConsumerGroupHeartbeat", NEXT_GENERATION_GROUPS
    )
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=NEXT_GENERATION_GROUPS
    )
