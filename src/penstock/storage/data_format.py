"""Whether a data directory is a broker's, and written in a way this version reads. Asked before anything is touched.

The format is that of the directory as a whole: of what `storage.layout` draws, with `metadata.db` and `identity.json`
beside it. It is raised with the version of any file in it (docs/upgrade.md), so that an older release, which may take
such a file for damaged and rebuild it, is turned away at the door. An identity that names no format has 1.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.core.errors import StorageError
from penstock.core.files import Files
from penstock.storage.layout import CLEANER_FILE, DRAFT, topics_dir

FORMAT = 2  # 2: producer snapshots in Kafka's layout
IDENTITY_FILE = "identity.json"
LOCK_FILE = ".lock"
CLEAN_FILE = "clean-shutdown"
METADATA_FILE = "metadata.db"
# What a first start that was killed may have left, and what every new ext4 file system has.
_BEFORE_IDENTITY = {LOCK_FILE, CLEAN_FILE, CLEANER_FILE, "topics", "trash", "quarantine", "lost+found"}
_NAMED_MAX = 3


class UnusableError(StorageError):
    """A data directory that this broker must not use."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(f"{found}: {advice}")
        self.found = found
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this directory belongs to; a broker that finds another cluster's or node's refuses to start."""

    cluster_id: str
    node_id: int
    directory_id: str
    format: int = FORMAT


def check_data_dir(files: Files, path: Path) -> None:
    """UnusableError where this broker must not use it."""
    try:
        read_identity(files, path)
    except FileNotFoundError:
        foreign = sorted(name for name in files.list_dir(path) if not _is_ours(name))
        if foreign:
            named = ", ".join(foreign[:_NAMED_MAX]) + (" …" if len(foreign) > _NAMED_MAX else "")
            found = f"{path} is no data dir of Penstock, it holds {named} and no {IDENTITY_FILE}"
            raise UnusableError(found, "name one that is new or empty") from None
        if files.list_dir(topics_dir(path)):
            found = f"{path} holds partitions, but no {IDENTITY_FILE}"
            raise UnusableError(found, "restore that file, or use another data dir") from None


def read_identity(files: Files, path: Path) -> Identity:
    """FileNotFoundError where there is none; UnusableError when it cannot be read, or a newer version wrote it."""
    file = path / IDENTITY_FILE
    try:
        fields = json.loads(files.read(file))
        found = int(fields.get("format", 1))
        if found > FORMAT:
            raise UnusableError(
                f"{path} has format {found}, and this version reads up to {FORMAT}",
                "start the newer version that wrote it (docs/upgrade.md)",
            )
        return Identity(str(fields["cluster_id"]), int(fields["node_id"]), str(fields["directory_id"]), found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnusableError(f"{file} is unreadable", "restore it, or use another data dir") from error


def write_identity(files: Files, path: Path, identity: Identity) -> None:
    text = json.dumps(asdict(identity))
    files.write_atomically(path / IDENTITY_FILE, text.encode() + b"\n")


def _is_ours(name: str) -> bool:
    return name in _BEFORE_IDENTITY or name.startswith(METADATA_FILE) or name.endswith(DRAFT)
