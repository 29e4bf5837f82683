"""Answers that wait in their socket as places in files: they are sent as they were meant, or the connection ends."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from tests.unit.storage.logs import NOW_MS, a_batch, append, opened, sync
from tests.unit.waiting import until

from penstock.core.os_files import OsFiles
from penstock.records.batch import BatchHeader, read_header, size_at
from penstock.server.writer import SendingTurn, SocketWriter, TransportWriter
from penstock.storage.log import Log
from penstock.storage.replicated import truncate
from penstock.storage.segment import Slice
from penstock.testing.mem_files import MemFiles

FILLER = bytes(4 << 20)  # more than a socket takes whose other end does not read
LARGE, SMALL = 40_000, 10


class Transport(asyncio.Transport):
    """Takes `room` bytes at once, and more when somebody makes room."""

    def __init__(self, room: int = 1 << 30) -> None:
        super().__init__()
        self.sent = bytearray()
        self.room = room
        self.waiting = b""
        self.aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return len(self.waiting)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.waiting
        self.sent += bytes(data)[: self.room]
        self.waiting = bytes(data)[self.room :]
        self.room -= min(self.room, len(data))

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


def grown(files: OsFiles | MemFiles, directory: Path, padding: int) -> Log:
    log = opened(files, directory=directory).log
    for _ in range(3):
        append(log, a_batch((NOW_MS,), padding=padding), epoch=1)
    return log


def rewrite(log: Log, padding: int) -> None:
    """Another one leads: what was not committed goes, and other records of the same size come in its place."""
    truncate(log, 1)
    for _ in range(2):
        append(log, a_batch((NOW_MS + 1,), padding=padding), epoch=2)


def answer(log: Log, offset: int) -> Slice:
    found = log.read(offset, 1 << 20, log.end(), at_least_one=True)
    assert found is not None
    return found


def batches(data: bytes) -> list[BatchHeader]:
    headers, at = [], 0
    while size_at(memoryview(data), at, len(data)) is not None:
        headers.append(read_header(data, at))
        at += headers[-1].size_bytes
    return headers


@pytest.mark.parametrize("padding", [LARGE, SMALL])
def test_an_answer_that_waited_in_its_socket_never_has_what_came_after_a_cut(
    padding: int, tmp_path: Path, sockets: tuple[socket.socket, socket.socket]
) -> None:
    log = grown(OsFiles(), tmp_path, padding)
    got = asyncio.run(_sent_over_a_cut(log, padding, *sockets))
    assert all(header.leader_epoch == 1 for header in batches(got))


async def _sent_over_a_cut(log: Log, padding: int, ours: socket.socket, theirs: socket.socket) -> bytes:
    """What the other end gets of an answer, behind so much else that it waits while the log is cut and grows."""
    transport = Transport()
    writer = SocketWriter(asyncio.get_running_loop(), transport, ours.fileno(), lambda: None)
    waiting = answer(log, 2)
    writer.send([FILLER, waiting])
    assert writer.unsent_bytes >= waiting.size
    rewrite(log, padding)
    got = bytearray()
    while True:
        try:
            more = theirs.recv(1 << 20)
        except BlockingIOError:
            more = b""
        got += more
        if not more and (transport.aborted or len(got) == len(FILLER) + waiting.size):
            writer.close()
            return bytes(got[len(FILLER) :])
        await asyncio.sleep(0)


def test_a_transport_is_given_slices_as_late_as_a_socket(tmp_path: Path) -> None:
    files = MemFiles()
    transport = Transport(room=10)
    writer = TransportWriter(transport)
    log = grown(files, tmp_path, SMALL)
    writer.send([bytes(20), answer(log, 2)])
    rewrite(log, SMALL)
    assert not transport.aborted
    transport.waiting, transport.room = b"", 1 << 20
    writer.resume()
    assert transport.aborted
    assert len(transport.sent) == 10


def test_nothing_follows_an_answer_that_could_not_be_sent_whole(
    tmp_path: Path, sockets: tuple[socket.socket, socket.socket]
) -> None:
    """What was asked behind it is answered when the row is empty again, before the loop has closed the socket."""
    ours, theirs = sockets
    log = grown(OsFiles(), tmp_path, LARGE)

    async def send() -> bytes:
        transport = Transport()

        def answer_the_next() -> None:
            writer.send([b"the next answer"])
            writer.send([b"another", answer(log, 0)])

        writer = SocketWriter(asyncio.get_running_loop(), transport, ours.fileno(), answer_the_next)
        writer.send([FILLER, answer(log, 2)])
        rewrite(log, LARGE)
        got = bytearray()
        while not transport.aborted or len(got) < len(FILLER):
            with suppress(BlockingIOError):
                got += theirs.recv(1 << 20)
            await asyncio.sleep(0)
        while True:
            try:
                more = theirs.recv(1 << 20)
            except BlockingIOError:
                more = b""
            if not more:
                writer.close()
                return bytes(got[len(FILLER) :])
            got += more

    assert asyncio.run(send()) == b""


@pytest.mark.parametrize("kind", ["socket", "transport"])
def test_a_read_error_ends_the_connection_instead_of_leaving_an_answer_out(
    kind: str, tmp_path: Path, sockets: tuple[socket.socket, socket.socket]
) -> None:
    files = MemFiles()
    transport = Transport()
    log = grown(files, tmp_path, SMALL)
    files.fail_next("read", "*.log")

    async def send() -> int:
        loop = asyncio.get_running_loop()
        late = TransportWriter(transport)
        writer = (
            late if kind == "transport" else SocketWriter(loop, transport, sockets[0].fileno(), lambda: None)
        )
        writer.send([b"head", answer(log, 0)])
        return writer.unsent_bytes

    assert asyncio.run(send()) == 0
    assert transport.aborted


def test_an_answer_from_a_log_that_was_closed_has_its_file_until_it_is_sent(tmp_path: Path) -> None:
    for files in (MemFiles(), OsFiles()):
        transport = Transport()
        log = grown(files, tmp_path, SMALL)
        late = answer(log, 0)
        log.close()
        TransportWriter(transport).send([b"head", late])
        assert transport.aborted
        del late
        assert not files.descriptors.live


def test_also_one_whose_file_was_closed_for_want_of_descriptors(tmp_path: Path) -> None:
    for files in (MemFiles(), OsFiles()):
        transport = Transport()
        log = grown(files, tmp_path, SMALL)
        sync(log)
        late = answer(log, 0)
        assert not files.descriptors.close_some()  # it is the answer's
        log.active.open()
        log.close()
        TransportWriter(transport).send([b"head", late])
        assert transport.aborted


def test_an_answer_from_a_log_that_is_deleted_has_its_file_until_it_is_sent(tmp_path: Path) -> None:
    for files in (MemFiles(), OsFiles()):
        transport = Transport()
        log = grown(files, tmp_path, SMALL)
        late = answer(log, 0)
        log.close(deleted=True)
        TransportWriter(transport).send([b"head", late])
        assert not transport.aborted
        assert len(transport.sent) == len(b"head") + late.size
        assert files.descriptors.live
        del late
        assert not files.descriptors.live


@pytest.mark.parametrize("kept", [0, 250])
def test_nor_has_one_that_waits_in_the_kernel_what_came_after_its_log_was_opened_again(
    kept: int, tmp_path: Path, sockets: tuple[socket.socket, socket.socket]
) -> None:
    """A page that a failed sync dropped is read from the disk again, in place: the kernel sends it as it is then."""
    ours, theirs = sockets

    async def send() -> bytes:
        log = opened(OsFiles(), directory=tmp_path).log
        for _ in range(500):
            append(log, a_batch(padding=SMALL), epoch=1)
        writer = SocketWriter(asyncio.get_running_loop(), Transport(), ours.fileno(), lambda: None)
        writer.send([answer(log, 0)])
        assert not writer.unsent_bytes
        dropped = answer(log, kept)
        dropped.file.pwrite(bytes(dropped.size), dropped.position)
        again = opened(OsFiles(), directory=tmp_path, rewrite_tail=True).log
        assert again.end_offset == kept
        log.close()
        for _ in range(300):
            append(again, a_batch(padding=SMALL), epoch=2)
        assert [header.base_offset for header in batches(answer_bytes(again, kept))] == [
            *range(kept, kept + 300)
        ]
        writer.close()
        return theirs.recv(1 << 20)

    got = asyncio.run(send())
    assert [header.leader_epoch for header in batches(got[: got.find(bytes(61))])] == [1] * kept


def answer_bytes(log: Log, offset: int) -> bytes:
    found = answer(log, offset)
    return found.file.pread(found.size, found.position)


class Turns:
    """Connections that share a turn of the loop, of which one large answer is all that fits into each."""

    def __init__(self, number: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 0.0
        monkeypatch.setattr("penstock.server.writer.stopwatch", self._stopwatch)
        loop = asyncio.get_running_loop()
        turn = SendingTurn(loop)
        self.pairs = [socket.socketpair() for _ in range(number)]
        self.transports = [Transport() for _ in self.pairs]
        self.drained: list[int] = []
        self.writers = [
            SocketWriter(loop, transport, ours.fileno(), partial(self.drained.append, index), turn)
            for index, (transport, (ours, _)) in enumerate(zip(self.transports, self.pairs, strict=True))
        ]
        self.answer = answer(grown(OsFiles(), directory, LARGE), 0)

    def _stopwatch(self) -> float:
        self._now += 0.001
        return self._now

    def send_all(self) -> None:
        for writer in self.writers:
            writer.send([self.answer])

    def waiting(self) -> list[int]:
        return [index for index, writer in enumerate(self.writers) if writer.unsent_bytes]

    def close(self) -> None:
        for writer, (ours, theirs) in zip(self.writers, self.pairs, strict=True):
            writer.close()
            ours.close()
            theirs.close()


async def test_large_answers_of_many_connections_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(4, tmp_path, monkeypatch)
    turns.send_all()
    seen = [turns.waiting()]
    while turns.waiting():
        await asyncio.sleep(0)
        if turns.waiting() != seen[-1]:
            seen.append(turns.waiting())
    assert seen == [[1, 2, 3], [2, 3], [3], []]
    assert turns.drained == [1, 2, 3], "who waited is told that all has gone"
    assert all(theirs.recv(1 << 20) for _, theirs in turns.pairs)
    turns.close()


async def test_who_left_while_it_waited_for_its_turn_is_sent_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(3, tmp_path, monkeypatch)
    turns.send_all()
    turns.writers[1].end()
    await until(lambda: not turns.waiting())
    assert turns.drained == [2]
    _, theirs = turns.pairs[1]
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(1)
    turns.close()
