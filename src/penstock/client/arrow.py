"""Batches of messages as Arrow tables.

    topic string, partition int32, offset int64, timestamp timestamp[ms, UTC], id string, key binary, value binary,
    tags list<string>, labels map<string, string>, headers list<struct<name: string, value: binary>>

`value` is binary where values are bytes. With a deserializer or encryption it holds what those make of it, in the
type Arrow finds for it: a struct for JSON objects, string for text.
"""

from typing import TYPE_CHECKING, Any

from penstock.client.errors import ClientError
from penstock.core.distribution import install

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from penstock.client.message import Message


def table_of(messages: "Sequence[Message]", *, decoded: bool) -> "pa.Table":
    pa = _pyarrow()
    stamp = pa.timestamp("ms", "UTC")
    header = pa.struct([("name", pa.string()), ("value", pa.binary())])
    columns = {
        "topic": pa.array([message.topic for message in messages], pa.string()),
        "partition": pa.array([message.partition for message in messages], pa.int32()),
        "offset": pa.array([message.offset for message in messages], pa.int64()),
        "timestamp": pa.array([message.timestamp for message in messages], stamp),
        "id": pa.array([message.id for message in messages], pa.string()),
        "key": pa.array([message.key for message in messages], pa.binary()),
        "value": _values(pa, messages, decoded=decoded),
        "tags": pa.array([message.tags for message in messages], pa.list_(pa.string())),
        "labels": pa.array(
            [list(message.labels.items()) for message in messages], pa.map_(pa.string(), pa.string())
        ),
        "headers": pa.array(
            [[{"name": name, "value": value} for name, value in message.headers] for message in messages],
            pa.list_(header),
        ),
    }
    return pa.table(columns)


def _values(pa: Any, messages: "Sequence[Message]", *, decoded: bool) -> Any:
    values = [message.value for message in messages]
    try:
        return pa.array(values) if decoded else pa.array(values, pa.binary())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ClientError(
            f"the values of {messages[0]!r} and those after it have no common Arrow type ({error}): "
            "read them with batches()"
        ) from error


def _pyarrow() -> Any:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ClientError(f"Arrow tables need the package pyarrow: {install('arrow')}") from error
    return pa
