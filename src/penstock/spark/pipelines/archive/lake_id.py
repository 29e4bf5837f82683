"""Which lake it is: retention waits for one, and must not take what another one has for it.

{"format": 1, "id": "u8Yw…"}

A copy of a lake has its id: it is for bringing back what was lost, not for archiving beside it.
"""

import json
import uuid
from contextlib import suppress

from penstock.core.archive_progress import id_text
from penstock.spark.pipelines.archive.entries import decode_tree
from penstock.spark.pipelines.archive.errors import ManifestError
from penstock.spark.pipelines.archive.lake import HOME, Lake

LAKE_FILE = f"{HOME}/lake.json"
_FORMAT = 1


def lake_id(lake: Lake) -> str:
    """Given to it when it is first asked for."""
    try:
        content = lake.read(LAKE_FILE)
    except FileNotFoundError:
        with suppress(FileExistsError):
            lake.create(
                LAKE_FILE, json.dumps({"format": _FORMAT, "id": id_text(uuid.uuid4().bytes)}).encode()
            )
        content = lake.read(LAKE_FILE)
    found = decode_tree(LAKE_FILE, content).get("id")
    if not isinstance(found, str) or not found:
        raise ManifestError(f"{LAKE_FILE} is damaged: bring it back")
    return found
