"""Many large requests at once: all connections together hold a bounded part of them, and small requests never wait."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from struct import pack

import pytest
from tests.abuse.scene import MEGABYTE, STRICT, Bounds, Scene, scene, unhurt
from tests.integration.raw import RawClient, create_topic, make_batch, produce_request, produced

from penstock.core.error_codes import ErrorCode
from penstock.testing import BrokerProcess, broker
from penstock.wire.kafka.api_keys import ApiKey

TOPIC = "large"
BUDGET_BYTES = 8 * MEGABYTE


@pytest.fixture(scope="module")
def process() -> Iterator[BrokerProcess]:
    with broker({"queued.max.request.bytes": str(BUDGET_BYTES)}) as running:
        yield running


def large_frame(client: RawClient, size_bytes: int) -> bytes:
    """A request that will be refused, after all of it was received."""
    batch = make_batch([bytes(size_bytes)])
    return client.frame(ApiKey.PRODUCE, 9, produce_request(TOPIC, [(0, batch)]))


def send_at_once(port: int, clients: int, size_bytes: int) -> None:
    """Each client sends one; all get their answer."""
    with ExitStack() as stack:
        create_topic(stack.enter_context(RawClient(port)), TOPIC)
        links = [stack.enter_context(RawClient(port)) for _ in range(clients)]
        frames = [large_frame(link, size_bytes) for link in links[:1]] * clients
        for link in links[1:]:
            large_frame(link, 1)  # so that it expects an answer, with the same number
        codes: list[int] = []

        def send(link: RawClient, frame: bytes) -> None:
            link.send_bytes(frame)
            codes.append(link.receive().responses[0].partition_responses[0].error_code)

        threads = [threading.Thread(target=send, args=pair) for pair in zip(links, frames, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert codes == [ErrorCode.MESSAGE_TOO_LARGE] * clients


def test_large_frames_side_by_side(scene: Scene) -> None:
    size_bytes = 24 * MEGABYTE
    send_at_once(scene.port, 8, size_bytes)
    unhurt(scene, Bounds(memory_peak_bytes=BUDGET_BYTES + size_bytes + 24 * MEGABYTE))


@pytest.mark.soak
def test_half_of_a_large_frame_keeps_nobody_from_sending_another(scene: Scene) -> None:
    """Those who wait for memory get some when clients that stopped in the middle are gone, or before."""
    with ExitStack() as stack:
        idlers = [stack.enter_context(RawClient(scene.port)) for _ in range(8)]
        create_topic(idlers[0], TOPIC)
        frame = large_frame(idlers[0], 8 * MEGABYTE)
        senders = [
            threading.Thread(target=_send_half, args=(idler, frame[: len(frame) // 2])) for idler in idlers
        ]
        for sender in senders:
            sender.start()
        send_at_once(scene.port, 1, 8 * MEGABYTE)
        scene.wait_for_rounds(3)
    for sender in senders:
        sender.join()
    unhurt(scene, Bounds(memory_peak_bytes=BUDGET_BYTES + 48 * MEGABYTE))


def _send_half(client: RawClient, data: bytes) -> None:
    with suppress(OSError):  # it was dropped
        client.send_bytes(data)


def announced(size_bytes: int) -> bytes:
    """How a Produce request of that size begins."""
    return pack(">ihhih", size_bytes, ApiKey.PRODUCE, 9, 0, 0)


def write_beside_trickles(scene: Scene, writes: int) -> None:
    """Several hold the budget with half of a request, a very large one trickles: writes of 200 KB go through."""
    stopped = threading.Event()
    with ExitStack() as stack:
        halves = [stack.enter_context(RawClient(scene.port)) for _ in range(4)]
        for client in halves[:3]:
            client.send_bytes(announced(3_900_000) + bytes(600 * 1024))
        scene.wait_for_rounds(10)
        large = stack.enter_context(RawClient(scene.port))
        large.send_bytes(announced(90 * MEGABYTE) + bytes(MEGABYTE))  # it is the first that waits
        scene.wait_for_rounds(10)
        halves[3].send_bytes(announced(3_900_000) + bytes(600 * 1024))
        threads = [threading.Thread(target=_trickle, args=(large, stopped))]
        threads += [threading.Thread(target=_send_half, args=(halve, bytes(1_600_000))) for halve in halves]
        for thread in threads:
            thread.start()
        scene.wait_for_rounds(10)
        try:
            good = stack.enter_context(RawClient(scene.port))
            create_topic(good, "written")
            for _ in range(writes):
                answer = produced(good, "written", make_batch([bytes(200_000)]))
                assert answer.error_code == ErrorCode.NONE
                scene.wait_for_rounds(2)
        finally:
            stopped.set()
    for thread in threads:
        thread.join()


def _trickle(client: RawClient, stopped: threading.Event) -> None:
    with suppress(OSError):  # it was dropped
        while not stopped.wait(0.1):
            client.send_bytes(bytes(7 * 1024))


def test_who_trickles_keeps_no_ordinary_requests_out(scene: Scene) -> None:
    write_beside_trickles(scene, 5)
    unhurt(scene, Bounds())


@pytest.mark.soak
def test_who_trickles_for_long_keeps_no_ordinary_requests_out(scene: Scene) -> None:
    write_beside_trickles(scene, 500)
    unhurt(scene, STRICT)


@pytest.mark.soak
def test_frames_of_ninety_megabytes_beside_the_default_budget(tmp_path: Path) -> None:
    with broker() as process, scene(process, tmp_path) as made:
        for _ in range(3):
            send_at_once(made.port, 20, 90 * MEGABYTE)
        # 5 GB over loopback: who sends them takes the other core. Past the budget of 128 MB one of them may finish.
        unhurt(made, replace(STRICT, p99_ms=150.0, memory_peak_bytes=(128 + 96) * MEGABYTE))
