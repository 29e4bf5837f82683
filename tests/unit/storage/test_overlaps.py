"""Files of another broker, put into a log: whatever they hold, they hide nothing that the log has."""

import pytest
from tests.unit.storage.logs import DIRECTORY, Settings, a_batch, append, opened, read, read_everything, sync

from penstock.records.batch import read_header
from penstock.storage.layout import DAMAGED, LOG, RECOVERY_POINT_FILE, segment_name
from penstock.storage.log import Log
from penstock.storage.recovered import Recovered
from penstock.storage.recovery import open_log
from penstock.testing.mem_files import MemFiles

END = 12
OWN = (0, 3, 6, 9)  # where its segments begin
SETTINGS = Settings(segment_bytes=len(a_batch()) * 3)
# From where to where a segment of another broker goes: all that are none of its own.
FOREIGN = [(base, end) for base in range(END) for end in range(base + 1, END + 1) if base not in OWN]


class Written:
    """A log that was stopped."""

    def __init__(self) -> None:
        self.files = MemFiles()
        log = opened(self.files, SETTINGS).log
        self.batches = []
        for _ in range(END):
            self.batches.append(read(log, append(log, a_batch()), 1))
        self.close(log)

    def close(self, log: Log) -> None:
        sync(log, checkpoint=True)
        log.close()

    def put(self, base: int, end: int, *, torn: bool = False) -> None:
        file = self.files.open(DIRECTORY / segment_name(base, LOG), create=True)
        data = b"".join(self.batches[base:end])
        file.pwrite(data[:-10] if torn else data, 0)
        file.sync()
        file.close()

    def take(self, base: int) -> None:
        self.files.unlink(DIRECTORY / segment_name(base, LOG))

    def open(self, *, only_copy: bool = False) -> Recovered:
        return open_log(self.files, DIRECTORY, SETTINGS, only_copy=only_copy, has_laggards=only_copy)

    def names(self, suffix: str) -> list[str]:
        return [name for name in self.files.list_dir(DIRECTORY) if name.endswith(suffix)]


def found(log: Log) -> list[int]:
    """Which batch each offset is answered with."""
    return [read_header(read(log, offset, 1)).base_offset for offset in range(END)]


@pytest.mark.parametrize("is_trusted", [True, False])
@pytest.mark.parametrize(("base", "end"), FOREIGN)
def test_one_that_overlaps_others_is_set_aside_and_told_of(base: int, end: int, is_trusted: bool) -> None:
    written = Written()
    written.put(base, end)
    if not is_trusted:
        written.files.unlink(DIRECTORY / RECOVERY_POINT_FILE)
    recovered = written.open()
    assert recovered.set_aside == written.names(DAMAGED) == [segment_name(base, LOG) + DAMAGED]
    assert recovered.lost is None
    assert found(recovered.log) == list(range(END))
    assert [batch.base_offset for batch in read_everything(recovered.log)] == list(range(END))
    assert append(recovered.log, a_batch()) == END
    written.close(recovered.log)
    again = written.open()
    assert (again.set_aside, again.log.end_offset) == ([], END + 1)


@pytest.mark.parametrize("taken", [OWN[:1], OWN[1:2], OWN[1:3]])
def test_its_own_put_back_where_they_were_are_served_again(taken: tuple[int, ...]) -> None:
    """An only copy went on without them, and its recovery point names them no more."""
    written = Written()
    for base in taken:
        written.take(base)
    recovered = written.open(only_copy=True)
    assert recovered.lost is not None
    written.close(recovered.log)
    for base in taken:
        written.put(base, base + 3)
    recovered = written.open(only_copy=True)
    assert recovered.set_aside == []
    assert found(recovered.log) == list(range(END))


@pytest.mark.parametrize(("base", "end"), [(base, end) for base, end in FOREIGN if base < 9])
def test_of_another_broker_in_their_place_they_hide_nothing(base: int, end: int) -> None:
    """In the place of 3 to 5; where they overlap nothing they are served."""
    written = Written()
    written.take(3)
    written.close(written.open(only_copy=True).log)
    written.put(base, end)
    recovered = written.open(only_copy=True)
    has = [0, 1, 2, 6, 7, 8, 9, 10, 11]
    if base >= 3 and end <= 6:
        assert recovered.set_aside == []
        has += range(base, end)
    else:
        assert recovered.set_aside == [segment_name(base, LOG) + DAMAGED]
    answers = found(recovered.log)
    assert all(answers[offset] == offset for offset in has)
    assert [batch.base_offset for batch in read_everything(recovered.log)] == sorted(has)


def offsets(log: Log) -> list[int]:
    return [batch.base_offset for batch in read_everything(log)]


@pytest.mark.parametrize(("base", "end"), [(3, 5), (3, 6), (4, 6)])
def test_one_that_ends_within_a_batch_is_served_without_it(base: int, end: int) -> None:
    """Retention takes what is missing behind it for no older than what lies there: an empty segment is in between."""
    written = Written()
    written.take(3)
    written.close(written.open(only_copy=True).log)
    written.put(base, end, torn=True)
    for _ in range(2):
        recovered = written.open(only_copy=True)
        assert offsets(recovered.log) == [0, 1, 2, *range(base, end - 1), *range(6, END)]
        assert end - 1 in [segment.base_offset for segment in recovered.log.segments if not segment.size]
        assert recovered.set_aside == []
        written.close(recovered.log)


def test_one_that_is_set_aside_does_not_fill_a_hole() -> None:
    written = Written()
    written.take(3)
    written.close(written.open(only_copy=True).log)
    written.put(2, 5)
    recovered = written.open(only_copy=True)
    assert recovered.set_aside == [segment_name(2, LOG) + DAMAGED]
    assert [segment.base_offset for segment in recovered.log.segments] == list(OWN)


@pytest.mark.parametrize("writes_on", [True, False])
def test_what_its_recovery_point_did_not_know_of_a_lost_file_does_not_show_offsets_twice(
    writes_on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The last file went after a crash; those offsets were given anew before it was put back."""
    written = Written()
    log = written.open().log
    append(log, a_batch())
    sync(log, checkpoint=True)
    for _ in range(2):
        append(log, a_batch())
    sync(log)
    files = written.files = written.files.kill()
    last = DIRECTORY / segment_name(END, LOG)
    kept = files.read(last)
    files.unlink(last)
    log = written.open(only_copy=True).log
    assert log.end_offset == END + 1
    since = [append(log, a_batch(padding=9)) for _ in range(3 * writes_on)]
    newer = read(log, END + 1)
    written.close(log)
    files.write_atomically(last, kept)
    recovered = written.open(only_copy=True)
    assert offsets(recovered.log) == [*range(END + 1), *since]
    assert read(recovered.log, END + 1) == newer
    assert append(recovered.log, a_batch()) == END + 1 + len(since)
    assert str(last) in caplog.text
