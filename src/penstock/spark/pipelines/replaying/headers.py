"""Where a replayed record comes from, in headers behind its own.

    penstock.replay.offset       the offset it had, as decimal text
    penstock.replay.timestamp    the timestamp it had, in milliseconds since 1970, as decimal text
    penstock.replay.from         the topic it was in, a slash, and the name of the selection that was replayed

A record that was replayed before has them twice; the last ones count.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

OFFSET = "penstock.replay.offset"
TIMESTAMP = "penstock.replay.timestamp"
FROM = "penstock.replay.from"
_NAMES = (OFFSET, TIMESTAMP, FROM)


def with_origin(
    headers: pa.ListArray, offset: pa.Int64Array, timestamp_ms: pa.Int64Array, source: str
) -> pa.ListArray:
    """The headers of each row, with those of its origin behind them."""
    rows, added = len(offset), len(_NAMES)
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy().astype(np.int64)
    entries = headers.flatten()
    old = len(entries)
    names = pa.concat_arrays([entries.field(0).cast(pa.string()), pa.array(_NAMES, pa.string())])
    values = pa.concat_arrays(
        [
            entries.field(1).cast(pa.binary()),
            offset.cast(pa.string()).cast(pa.binary()),
            timestamp_ms.cast(pa.string()).cast(pa.binary()),
            pa.array([source.encode()], pa.binary()),
        ]
    )
    bounds = np.zeros(rows + 1, np.int64)
    np.cumsum(counts + added, out=bounds[1:])
    # Where each entry is taken from: the old ones move up, the new ones come behind them.
    name_at = np.empty(int(bounds[-1]), np.int64)
    value_at = np.empty(int(bounds[-1]), np.int64)
    old_places = np.arange(old) + np.repeat(np.arange(rows) * added, counts)
    name_at[old_places] = value_at[old_places] = np.arange(old)
    row = np.arange(rows)
    for index, place in enumerate(bounds[1:] - added + at for at in range(added)):
        name_at[place] = old + index
        value_at[place] = old + 2 * rows if index == added - 1 else old + index * rows + row
    joined = pa.StructArray.from_arrays(
        [names.take(pa.array(name_at)), values.take(pa.array(value_at))], names=["key", "value"]
    )
    return pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), joined)


def origin(headers: Any) -> tuple[str, int] | None:
    """What one record's headers, as Python lists them, say of where it is from; None when it was not replayed."""
    found = {entry["key"]: entry["value"] for entry in headers or () if entry["key"] in _NAMES}
    try:
        return found[FROM].decode(), int(found[OFFSET])
    except (KeyError, ValueError, AttributeError):
        return None
