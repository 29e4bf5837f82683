"""What a Produce, a Fetch and an OffsetCommit cost the broker, beside another revision of it.

    python -m benchmarks.per_request REVISION [ROUNDS]      e.g. HEAD~20, and 15 rounds by default

Both revisions run by turns, each round in a process of its own: a whole broker on a real disk, whose answers go to a
socket that is emptied between the runs. The figure is the 5th percentile
of the CPU time of many short runs: what disturbs a run only ever makes it longer.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
ROUNDS = 15
_RUNS = 120
_REQUESTS_PER_RUN = 50
_VALUE_BYTES = 1000
_PERCENTILE = 20  # one in so many runs is faster
_TOPIC = "orders"
_OFFSETS_TOPIC = "__consumer_offsets"  # by name: where it is declared differs between revisions


class _Transport(asyncio.Transport):
    """A connection whose other end is `far`."""

    def __init__(self) -> None:
        super().__init__()
        self._near, self.far = socket.socketpair()
        for each in (self._near, self.far):
            each.setblocking(False)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 1), "socket": self._near}.get(name, default)

    def emptied(self) -> int:
        """How many bytes were answered since the last time."""
        total = 0
        with suppress(BlockingIOError):
            while True:
                total += len(self.far.recv(1 << 20))
        return total

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None:
        raise AssertionError("the broker broke off the connection")


def _frame(api_key: int, version: int, request: Any) -> bytes:
    from penstock.wire.kafka.headers import RequestHeader, encode_request_header
    from penstock.wire.kafka.messages import request_module

    header = RequestHeader(api_key=api_key, api_version=version, correlation_id=1, client_id="bench")
    body = encode_request_header(header) + request_module(api_key).encode_request(request, version)
    return len(body).to_bytes(4, "big") + body


def _frames() -> Iterator[tuple[str, bytes]]:
    from penstock.records.builder import build_batch
    from penstock.records.reader import Record
    from penstock.wire.kafka.api_keys import ApiKey
    from penstock.wire.kafka.generated import fetch, offset_commit, produce

    batch = bytes(build_batch([Record(offset=0, timestamp=1, key=None, value=bytes(_VALUE_BYTES))]))
    data = produce.PartitionProduceData(index=0, records=batch)
    topic = produce.TopicProduceData(name=_TOPIC, partition_data=[data])
    yield "Produce", _frame(ApiKey.PRODUCE, 10, produce.ProduceRequest(acks=-1, topic_data=[topic]))
    place = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2000)
    wanted = fetch.FetchRequest(
        min_bytes=1, max_bytes=10_000, topics=[fetch.FetchTopic(topic=_TOPIC, partitions=[place])]
    )
    yield "Fetch", _frame(ApiKey.FETCH, 12, wanted)
    commit = offset_commit.OffsetCommitRequest(
        group_id="billing",
        generation_id_or_member_epoch=-1,
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                name=_TOPIC,
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
                ],
            )
        ],
    )
    yield "OffsetCommit", _frame(ApiKey.OFFSET_COMMIT, 8, commit)


async def _measure(directory: str) -> dict[str, float]:
    from penstock.config.broker import BrokerConfig
    from penstock.coordination.memory import MemoryStore
    from penstock.core.clock import SystemClock
    from penstock.server.broker import Broker
    from penstock.server.seams import Seams

    try:
        from penstock.core.os_files import OsFiles
    except ModuleNotFoundError:
        from penstock.core.files import OsFiles  # where it was before

    settings = {
        "log.dirs": directory,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "penstock.ack.after": "written",
        "penstock.idle.poll.us": "0",
    }
    seams = Seams(OsFiles(), SystemClock(), random.Random(1), None)
    tree = await MemoryStore().connect()
    # Where to listen was once told apart from the settings.
    apart = {"host": "127.0.0.1", "port": 0} if "host" in inspect.signature(Broker).parameters else {}
    broker = Broker(BrokerConfig.resolve(settings), seams, tree, **apart)
    await broker.start()
    await _prepare(broker)
    transport = _Transport()
    listener = broker.listener if apart else broker.listeners.all[0]
    connection = listener._connection()  # noqa: SLF001 - as if a client had connected
    connection.connection_made(transport)
    figures = {}
    for name, frame in _frames():
        _run(connection, frame, 1)
        await _until(lambda: transport.emptied() > 0)
        gc.collect()
        gc.disable()
        spent = []
        for _ in range(_RUNS):
            spent.append(_run(connection, frame, _REQUESTS_PER_RUN))
            await _until(lambda: transport.emptied() > 0)
        gc.enable()
        figures[name] = sorted(spent)[_RUNS // _PERCENTILE] / _REQUESTS_PER_RUN * 1e6
    await broker.stop()
    return figures


def _run(connection: Any, frame: bytes, count: int) -> float:
    """Ask so often, one request at a time; the CPU seconds that it took."""
    began = time.process_time()
    for _ in range(count):
        connection.get_buffer(-1)[: len(frame)] = frame
        connection.buffer_updated(len(frame))
    return time.process_time() - began


async def _prepare(broker: Any) -> None:
    from penstock.coordination.metadata import NewTopic
    from penstock.coordination.nodes import PartitionState

    state = PartitionState(replicas=(1,), isr=(1,), leader=1)
    new = [NewTopic(name, [state], {}) for name in (_TOPIC, _OFFSETS_TOPIC)]
    await broker.metadata.create_topics(new)
    hosting = broker.hosting if hasattr(broker, "hosting") else broker.services.hosting  # where it was before
    await hosting.reconcile()


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nothing tells when it is so
        await asyncio.sleep(0.001)


def _child(source: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": f"{source / 'src'}:{ROOT}", "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.per_request", "--child"],
        env=environment,
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return json.loads(done.stdout)


def main(revision: str, rounds: int) -> None:
    other = Path(tempfile.mkdtemp())
    try:
        archive = subprocess.run(
            ["git", "archive", revision, "src"], cwd=ROOT, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", str(other)], input=archive.stdout, check=True)
        figures: dict[str, list[dict[str, float]]] = {"before": [], "now": []}
        for _ in range(rounds):
            figures["before"].append(_child(other))
            figures["now"].append(_child(ROOT))
    finally:
        shutil.rmtree(other)
    print(f"{'µs of CPU':14} {revision:>12} {'now':>8} {'ratio':>7}")
    for name in figures["now"][0]:
        before, now = (min(figure[name] for figure in figures[side]) for side in ("before", "now"))
        print(f"{name:14} {before:12.2f} {now:8.2f} {now / before:7.3f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        with tempfile.TemporaryDirectory() as directory:
            print(json.dumps(asyncio.run(_measure(directory))))
    else:
        main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS)
