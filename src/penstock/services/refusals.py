"""What clients ask for and this broker does not serve, told in its log: once for each client id and API.

The client is refused by an error at which its library stops (the handlers say which, and why that one), but whoever
runs the broker may be the one who is asked. Client ids are the clients' choice, in length and in number: they are cut,
and the oldest are forgotten.
"""

import logging

from penstock.core.limits import CLIENT_ID_LOGGED_CHARS_MAX, REFUSALS_REMEMBERED_MAX

TRANSACTIONS = "Penstock does not serve transactions yet: use a producer without transactional.id"
NEXT_GENERATION_GROUPS = (
    "Penstock does not serve the consumer group protocol of KIP-848 yet: set group.protocol=classic"
)
SHARE_GROUPS = "Penstock does not serve share groups (KIP-932) yet: use a consumer group"
SASL = "Penstock does not serve SASL yet: set security.protocol=PLAINTEXT"

logger = logging.getLogger(__name__)


class Refusals:
    def __init__(self) -> None:
        self._told: dict[tuple[str, str], None] = {}  # the oldest first

    def tell(self, client_id: str | None, peer: str, api: str, why: str) -> None:
        client = client_id or ""
        if len(client) > CLIENT_ID_LOGGED_CHARS_MAX:
            client = client[:CLIENT_ID_LOGGED_CHARS_MAX] + "…"
        if (client, api) in self._told:
            return
        if len(self._told) >= REFUSALS_REMEMBERED_MAX:
            del self._told[next(iter(self._told))]
        self._told[client, api] = None
        logger.warning("refused %s of client %r at %s: %s", api, client, peer, why)
