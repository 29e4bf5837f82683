"""ApiVersions (18), versions 0-4: which APIs and versions this broker serves, as the registry has them.

v3 is flexible and carries the client's software name and version, which must be well-formed; v3 also adds feature
levels; v4 allows a minimum feature level of 0 in the answer.
"""

import re

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, advertised, api, not_served
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

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
        for key, lowest, highest in advertised(not_served(services.config.now))
    ]
    return ApiVersionsResponse(api_keys=keys)
