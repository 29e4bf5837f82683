"""A broker whose standard streams are closed or full starts, serves, and ends as it was told to."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.raw import RawClient, create_topic, make_batch, produced, read_log, wait_until

STREAMS = {
    "all closed": "<&- >&- 2>&-",
    "both full": "</dev/null >/dev/full 2>/dev/full",
    "no input": "<&- >/dev/null 2>/dev/null",
    "no output": "</dev/null >&- 2>/dev/null",
    "no errors": "</dev/null >/dev/null 2>&-",
    "full output": "</dev/null >/dev/full 2>/dev/null",
}
SHORT = ("all closed", "both full")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    "streams", [name if name in SHORT else pytest.param(name, marks=pytest.mark.soak) for name in STREAMS]
)
def test_standard_streams_do_not_matter(streams: str, tmp_path: Path) -> None:
    port = free_port()
    command = f"exec {sys.executable} -m penstock.cli.main up --port {port} --console-port 0 --data-dir "
    process = subprocess.Popen(["/bin/sh", "-c", f"{command} {tmp_path / 'data'} {STREAMS[streams]}"])
    try:
        wait_until(lambda: process.poll() is not None or is_listening(port), "it starts")
        assert process.poll() is None
        with RawClient(port) as client:
            assert create_topic(client, "kept").error_code == 0
            assert produced(client, "kept", make_batch([b"value"])).error_code == 0
        assert read_log(port, "kept") == [b"value"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "data" / "clean-shutdown").exists()
