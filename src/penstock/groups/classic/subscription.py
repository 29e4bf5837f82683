"""The topics in a consumer's subscription: the one thing the coordinator looks at inside a member's metadata.

version int16 | topics array of string | …          (every version begins so)
"""

from collections.abc import Iterable

from penstock.core.limits import SUBSCRIBED_TOPICS_MAX
from penstock.wire.kafka.primitives import MALFORMED, DecodeError, read_count, read_strings

_VERSION_BYTES = 2
_TOPIC_BYTES_MIN = 2


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of all of them; None when one cannot be read, or they are too many: then nobody can say."""
    topics: set[str] = set()
    named = 0
    try:
        for metadata in dict.fromkeys(subscriptions):  # nearly always they are all the same
            count, position = read_count(metadata, _VERSION_BYTES, _TOPIC_BYTES_MIN)
            named += count
            if named > SUBSCRIBED_TOPICS_MAX:
                return None
            topics.update(read_strings(metadata, position, count)[0])
    except (DecodeError, *MALFORMED):
        return None
    return frozenset(topics)
