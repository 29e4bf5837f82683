"""The name under which Penstock is installed, and the line that adds an extra to an installation."""

import json
from typing import Any
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "penstock-mq"


def install(*extras: str) -> str:
    """A command that works here: from the checkout, wheel or repository that this came from, or from an index."""
    wanted = f"[{','.join(extras)}]"
    origin = _origin()
    if origin is None:
        return f"pip install '{DISTRIBUTION}{wanted}'"
    url = urlsplit(origin["url"])
    if url.scheme != "file":
        repository = origin.get("vcs_info")
        exact = (
            f"{repository['vcs']}+{origin['url']}@{repository['commit_id']}" if repository else origin["url"]
        )
        return f"pip install '{DISTRIBUTION}{wanted} @ {exact}'"
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{unquote(url.path)}{wanted}'"


def _origin() -> dict[str, Any] | None:
    """Where pip took it from, unless that was an index (PEP 610)."""
    from importlib import metadata  # noqa: PLC0415 - 40 modules, for a sentence that is seldom said

    try:
        noted = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # imported from a source tree that nobody installed
        return None
    return None if noted is None else json.loads(noted)
