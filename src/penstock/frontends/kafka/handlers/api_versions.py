"""ApiVersions (18), versions 0-4: which APIs and versions this broker serves, as the registry has them.

v3 is flexible and carries the client's software name and version, which must be well-formed; v3 also adds feature
levels; v4 allows a minimum feature level of 0 in the answer. The one feature is `transaction.version`, told where
transactions are served (`penstock.transactions.enable`) by every broker of the cluster: clients go over to its second
version as soon as any broker tells of it.
"""

import re

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, advertised, api
from penstock.services.services import Services
from penstock.services.transactions.kind import LEVEL
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_FEATURE = "transaction.version"
_MINIMUM_0_SINCE = 4
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@api(ApiKey.API_VERSIONS, versions=(0, 4))
def handle(services: Services, request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    if call.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        call.session.client_software_name, call.session.client_software_version = name, version
    keys = [
        ApiVersion(api_key=key, min_version=lowest, max_version=highest)
        for key, lowest, highest in advertised(transactions=services.config.now.penstock_transactions_enable)
    ]
    answer = ApiVersionsResponse(api_keys=keys)
    level = _transaction_version(services)
    if level:
        if call.version >= _MINIMUM_0_SINCE:
            answer.supported_features = [SupportedFeatureKey(name=_FEATURE, min_version=0, max_version=LEVEL)]
        answer.finalized_features = [
            FinalizedFeatureKey(name=_FEATURE, max_version_level=level, min_version_level=level)
        ]
        # Clients believe whoever tells them the highest epoch. Levels only rise, so the level will do.
        answer.finalized_features_epoch = level
    return answer


def _transaction_version(services: Services) -> int:
    """What all brokers can, those that are known to be there."""
    if not services.config.now.penstock_transactions_enable:
        return 0
    return min((broker.transaction_version for broker in services.image.brokers.values()), default=LEVEL)
