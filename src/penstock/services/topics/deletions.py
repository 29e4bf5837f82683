"""Which topics a deletion means: they may be named by name or by id, once each; a pure decision."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.coordination.image import ClusterImage, Topic
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError

NO_ID = bytes(16)


@dataclass(frozen=True, slots=True)
class TopicReference:
    """Exactly one of the two is to be given."""

    name: str | None = None
    id: bytes = NO_ID


@dataclass(frozen=True, slots=True)
class Deletion:
    """What is told about one topic; without an error it is gone."""

    name: str | None
    id: bytes
    error: ApiError | None = None


def choose_topics(
    wanted: Sequence[TopicReference], image: ClusterImage
) -> tuple[list[Deletion], list[Topic]]:
    """What is refused, and the topics to delete. What is named twice is ambiguous, and so not deleted at all."""
    # The same for all, of which there may be twenty thousand.
    unknown_id = ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    unknown = ApiError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    )
    refused: list[Deletion] = []
    names: dict[str, int] = {}
    ids: dict[bytes, int] = {}
    for reference in wanted:
        if reference.name is None and reference.id == NO_ID:
            refused.append(_invalid(None, NO_ID, "Neither topic name nor id were specified."))
        elif reference.name is None:
            ids[reference.id] = ids.get(reference.id, 0) + 1
        elif reference.id == NO_ID:
            names[reference.name] = names.get(reference.name, 0) + 1
        else:
            refused.append(
                _invalid(reference.name, reference.id, "You may not specify both topic name and topic id.")
            )
    chosen: dict[bytes, Topic] = {}
    for topic_id, count in ids.items():
        topic = image.topics_by_id.get(topic_id)
        if count > 1:
            refused.append(_invalid(None, topic_id, "Duplicate topic id."))
        elif topic is None:
            refused.append(Deletion(None, topic_id, unknown_id))
        else:
            chosen[topic_id] = topic
    for name, count in names.items():
        topic = image.topics.get(name)
        if count > 1:
            refused.append(_invalid(name, NO_ID, "Duplicate topic name."))
        elif topic is None:
            refused.append(Deletion(name, NO_ID, unknown))
        elif topic.id in ids:
            chosen.pop(topic.id, None)
            problem = "The provided topic name maps to an ID that was already supplied."
            refused.append(_invalid(name, topic.id, problem))
        else:
            chosen[topic.id] = topic
    return refused, list(chosen.values())


def _invalid(name: str | None, topic_id: bytes, problem: str) -> Deletion:
    return Deletion(name, topic_id, ApiError(ErrorCode.INVALID_REQUEST, problem))
