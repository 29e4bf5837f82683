"""DeleteTopics (20), versions 1-6: topics gone for every client before the answer leaves; files follow in a thread.

v4 is flexible; v5 adds a message to each error; v6 takes ids in place of names, one of the two per topic.
"""

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.turns import in_turns
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.services.topics.deletions import Deletion, TopicReference
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

_DISABLED_CODE_SINCE = 3
_IDS_SINCE = 6


@api(ApiKey.DELETE_TOPICS, versions=(1, 6), forwarded=True)
async def handle(services: Services, request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    if call.version >= _IDS_SINCE:
        wanted = await in_turns(lambda topic: TopicReference(topic.name, topic.topic_id), request.topics)
    else:
        wanted = await in_turns(TopicReference, request.topic_names)
    if services.config.now.delete_topic_enable:
        results = await services.topics.delete(wanted, timeout_ms=request.timeout_ms)
    else:
        old = call.version < _DISABLED_CODE_SINCE
        disabled = ApiError(ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED)
        results = [Deletion(reference.name, reference.id, disabled) for reference in wanted]
    return DeleteTopicsResponse(responses=await in_turns(_result, results))


def _result(deletion: Deletion) -> DeletableTopicResult:
    error = deletion.error
    return DeletableTopicResult(
        name=deletion.name,
        topic_id=deletion.id,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )
