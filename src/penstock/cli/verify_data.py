"""`penstock verify --data-dir`: the files of a broker that is stopped."""

from pathlib import Path
from typing import NamedTuple

import typer

from penstock.cli.command import Session, say_error
from penstock.cli.errors import FAILED, CommandError
from penstock.cli.output import print_json, print_table
from penstock.core.os_files import OsFiles
from penstock.core.text import count_text, size_text
from penstock.diagnosis.data_dir import is_clean, is_locked
from penstock.diagnosis.data_files import check_partition, is_compacted
from penstock.storage.data_format import check_data_dir


class _Found(NamedTuple):
    topic: str
    partition: int
    size_bytes: int
    wrong: str  # empty: all is well


def verify_data_dir(session: Session, data_dir: Path) -> None:
    from penstock.cli.progress import Bar

    if not (data_dir / "topics").is_dir():
        raise CommandError(f"{data_dir} is no data dir of a broker: name one with --data-dir")
    check_data_dir(OsFiles(), data_dir)
    if is_locked(data_dir):
        raise CommandError(
            f"a broker runs on {data_dir}: stop it first, or compare replicas with `penstock verify`"
        )
    partitions = sorted(data_dir.glob("topics/*/Partition-*"))
    total = sum(file.stat().st_size for partition in partitions for file in partition.glob("*.log"))
    found: list[_Found] = []
    with Bar("checking", quiet=session.json) as bar:
        for path in partitions:
            before = sum(each.size_bytes for each in found)
            wrong_here, done = check_partition(
                path,
                clean=is_clean(data_dir),
                compacted=is_compacted(path),
                progress=bar,
                before=before,
                total=total,
            )
            number = int(path.name.rpartition("-")[2])
            found.append(_Found(path.parent.name, number, done, wrong_here))
    wrong = [path for path in found if path.wrong]
    if session.json:
        print_json({"sound": not wrong, "partitions": [path._asdict() for path in found]})
    else:
        topics: dict[str, list[_Found]] = {}
        for each in found:
            topics.setdefault(each.topic, []).append(each)
        print_table(
            ("topic", "partitions", "checked", "result"),
            [
                (
                    name,
                    len(each),
                    size_text(sum(path.size_bytes for path in each)),
                    f"{damaged} damaged" if (damaged := sum(bool(path.wrong) for path in each)) else "sound",
                )
                for name, each in topics.items()
            ],
        )
        for each in wrong:
            print(f"{each.topic}-{each.partition}: {each.wrong}")
    if wrong:
        say_error(
            f"{count_text(len(wrong), 'damaged partition')}: start the broker as it is. What others have it copies "
            "from them, and what only it has it keeps. When all replicas are in sync, `penstock verify` says which "
            "copies are still damaged and can be fetched anew; until then move no folder away: others may have less"
        )
        raise typer.Exit(FAILED)
