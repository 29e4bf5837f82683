"""Up to where each compacted partition is clean: one file per data dir, as Apache Kafka's, but by topic id.

It may be behind, for cleaning what is clean changes nothing; it is never ahead, being written after the segments are
in place. One that cannot be read is as good as none.
"""

from collections.abc import Mapping
from pathlib import Path

from penstock.core.crc32c import crc32c
from penstock.core.errors import StorageError
from penstock.core.files import Files
from penstock.storage.layout import CLEANER_FILE

_FILE_VERSION = 0

Place = tuple[bytes, int]  # topic id, partition


def save_cleaned(files: Files, data_dir: Path, offsets: Mapping[Place, int]) -> None:
    lines = [str(_FILE_VERSION), str(len(offsets))]
    lines += [f"{topic_id.hex()} {partition} {offset}" for (topic_id, partition), offset in offsets.items()]
    text = ("\n".join(lines) + "\n").encode()
    files.write_atomically(data_dir / CLEANER_FILE, text + b"crc32c %08x\n" % crc32c(text))


def load_cleaned(files: Files, data_dir: Path) -> dict[Place, int]:
    try:
        text, _, checksum = files.read(data_dir / CLEANER_FILE).rpartition(b"crc32c ")
        if int(checksum, 16) != crc32c(text):
            return {}
        version, count, *lines = text.decode().split("\n")
        offsets = {}
        for line in filter(None, lines):
            topic_id, partition, offset = line.split(" ")
            offsets[bytes.fromhex(topic_id), int(partition)] = int(offset)
    except (FileNotFoundError, ValueError, StorageError):
        return {}
    return offsets if int(version) == _FILE_VERSION and int(count) == len(offsets) else {}
