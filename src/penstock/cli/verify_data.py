"""The files of a broker that is stopped, read from end to end: every batch whole, undamaged and in its place."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from penstock.cli.check_data import is_clean, is_locked
from penstock.cli.command import Session, say_error
from penstock.cli.errors import FAILED, CommandError
from penstock.cli.output import count_text, print_json, print_table, size_text

if TYPE_CHECKING:
    from penstock.cli.progress import Bar

_PIECE_BYTES = 8 * 1024 * 1024


class _Found(NamedTuple):
    topic: str
    partition: int
    size_bytes: int
    wrong: str  # empty: all is well


def verify_data_dir(session: Session, data_dir: Path) -> None:
    from penstock.cli.progress import Bar

    if not (data_dir / "topics").is_dir():
        raise CommandError(f"{data_dir} is no data dir of a broker: name one with --data-dir")
    if is_locked(data_dir):
        raise CommandError(
            f"a broker runs on {data_dir}: stop it first, or compare replicas with `penstock verify`"
        )
    partitions = sorted(data_dir.glob("topics/*/Partition-*"))
    total = sum(file.stat().st_size for one in partitions for file in one.glob("*.log"))
    found: list[_Found] = []
    with Bar("checking", quiet=session.json) as bar:
        for one in partitions:
            found.append(_check(one, bar, sum(each.size_bytes for each in found), total, is_clean(data_dir)))
    wrong = [one for one in found if one.wrong]
    if session.json:
        print_json({"sound": not wrong, "partitions": [one._asdict() for one in found]})
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
                    size_text(sum(one.size_bytes for one in each)),
                    f"{damaged} damaged" if (damaged := sum(bool(one.wrong) for one in each)) else "sound",
                )
                for name, each in topics.items()
            ],
        )
        for each in wrong:
            print(f"{each.topic}-{each.partition}: {each.wrong}")
    if wrong:
        say_error(
            f"{count_text(len(wrong), 'damaged partition')}: where there are other replicas, move the partition's "
            "folder away before the next start, and it fetches a whole copy"
        )
        raise typer.Exit(FAILED)


def _check(directory: Path, bar: "Bar", before: int, total: int, clean: bool) -> _Found:
    done, wrong, expected = 0, "", -1
    files = sorted(directory.glob("*.log"))
    files = [one for one in files if one.stem.isdigit()]
    for number, file in enumerate(files):
        # What a crash tore off at the very end is cut by the next start.
        torn_is_fine = not clean and number == len(files) - 1
        for what in _walk(file, expected):
            if isinstance(what, str):
                wrong = wrong or ("" if torn_is_fine else f"{file.name}: {what}")
                break
            size, expected = what
            done += size
            bar.show(before + done, total)
    return _Found(directory.parent.name, int(directory.name.rpartition("-")[2]), done, wrong)


def _walk(file: Path, expected: int) -> Iterator[tuple[int, int] | str]:
    """(bytes, next offset) piece by piece, or what is wrong."""
    from penstock.records.batch import InvalidBatch, check_batch, size_at

    position = 0
    end = file.stat().st_size
    with file.open("rb") as source:
        while position < end:
            source.seek(position)
            view = memoryview(source.read(_PIECE_BYTES))
            at = 0
            try:
                size = size_at(view, 0, len(view))
                if size is not None and len(view) < size <= end - position:
                    source.seek(position)
                    view = memoryview(source.read(size))
                while at < len(view):
                    size = size_at(view, at, len(view))
                    if at and (size is None or at + size > len(view)):
                        break  # the rest comes with the next piece
                    header = check_batch(view, at)
                    if header.base_offset < expected:
                        yield f"offset {header.base_offset} follows {expected - 1}"
                        return
                    expected = header.next_offset
                    at += header.size_bytes
            except InvalidBatch as error:
                yield f"at byte {position + at}, offset {max(expected, 0)} or later: {error}"
                return
            position += at
            yield at, expected
