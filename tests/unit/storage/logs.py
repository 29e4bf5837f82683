"""Small logs for tests: settings, batches, and reading a log back as bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.core.files import Files
from penstock.records.batch import BatchHeader, read_header
from penstock.records.builder import BatchBuilder, BatchOptions
from penstock.storage.checkpoint import SyncJob
from penstock.storage.log import Log
from penstock.storage.recovered import Recovered
from penstock.storage.recovery import open_log
from penstock.storage.segment import ColdRead

DIRECTORY = Path("/data/topics/t/Partition-0")
NOW_MS = 1_000_000


@dataclass
class Settings:
    segment_bytes: int = 1 << 30
    segment_ms: int = 1 << 40
    index_interval_bytes: int = 4096
    segment_jitter_ms: int = 0
    compacts: bool = False
    segment_index_bytes: int = 10 << 20


def opened(
    files: Files,
    settings: Settings | None = None,
    directory: Path = DIRECTORY,
    *,
    rewrite_tail: bool = False,
    only_copy: bool = False,
    has_laggards: bool = False,
) -> Recovered:
    if not files.exists(directory):
        files.make_dirs(directory)
        files.sync_all(directory)
    return open_log(
        files,
        directory,
        settings or Settings(),
        rewrite_tail=rewrite_tail,
        only_copy=only_copy,
        has_laggards=has_laggards,
    )


def a_batch(
    timestamps: Sequence[int] = (NOW_MS,),
    *,
    producer: tuple[int, int, int] | None = None,
    padding: int = 0,
    append_time_ms: int | None = None,
) -> bytearray:
    """A batch with one record per timestamp; `producer` is (id, epoch, first sequence)."""
    options = BatchOptions(append_time_ms=append_time_ms)
    if producer is not None:
        options.producer_id, options.producer_epoch, options.base_sequence = producer
    builder = BatchBuilder(options)
    for number, timestamp in enumerate(timestamps):
        builder.append(b"%d" % number + b"." * padding, timestamp=timestamp)
    return builder.build()


def append(log: Log, batch: bytearray, *, epoch: int = 0, now_ms: int = NOW_MS) -> int:
    return log.append(memoryview(batch), read_header(batch), epoch, now_ms)


def sync(log: Log, *, checkpoint: bool = False) -> SyncJob:
    job = log.sync_job(checkpoint=checkpoint)
    job.run()
    log.synced(job)
    return job


def read(log: Log, offset: int, size_max: int = 1 << 30, *, at_least_one: bool = True) -> bytes:
    """What a fetch at `offset` gets; warms what is cold, as the fetch service does."""
    for _ in range(1000):
        try:
            found = log.read(offset, size_max, log.end(), at_least_one=at_least_one)
        except ColdRead as cold:
            cold.warm()
            continue
        return found.file.pread(found.size, found.position) if found else b""
    raise AssertionError("still cold after a thousand reads")


def read_everything(log: Log, offset: int | None = None) -> list[BatchHeader]:
    """Every batch from `offset` (the log's start) to its end, following the answers as a consumer would."""
    headers: list[BatchHeader] = []
    at = log.start_offset if offset is None else offset
    while at < log.end_offset:
        data = read(log, at)
        assert data, f"nothing to read at {at}, though the log ends at {log.end_offset}"
        position = 0
        while position < len(data):
            headers.append(read_header(data, position))
            position += headers[-1].size_bytes
        at = headers[-1].next_offset
    return headers
