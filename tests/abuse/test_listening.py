"""The doors themselves: many who knock at once, and those who only want to know whether anybody is there."""

import select
import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

from penstock.testing import BrokerProcess

BURST = 200
KERNEL_SECONDS = 10


def test_a_burst_of_connections_waits_to_be_accepted(process: BrokerProcess) -> None:
    """While the broker is busy the kernel keeps them: nobody is told to try again in a second."""
    with ExitStack() as stack:
        process.pause()
        stack.callback(process.resume)
        left = {stack.enter_context(socket.socket()) for _ in range(BURST)}
        for connection in left:
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", process.port))
        while left:
            _, connected, _ = select.select([], list(left), [], KERNEL_SECONDS)
            assert connected, f"{len(left)} of {BURST} were not let in"
            left -= set(connected)


def test_head_is_answered_without_a_body(process: BrokerProcess) -> None:
    address = urlsplit(process.console_url)
    for path in ("/healthz", "/metrics", "/nothing"):
        with socket.create_connection((address.hostname, address.port), KERNEL_SECONDS) as client:
            client.sendall(f"HEAD {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
            answer = b""
            while data := client.recv(65536):
                answer += data
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"Content-Length: " in head
        assert body == b""
