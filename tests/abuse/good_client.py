"""The good client, a process of its own: a message every 50 ms, produced and read back, each round noted in a file.

    python -m tests.abuse.good_client PORT TOPIC FILE

A line per round: `ok NUMBER OFFSET MILLISECONDS`, from when the round was due to when the message was read; or
`error TEXT`, after which it connects again. It ends when its standard input does.
"""

import sys
import threading
import time
from typing import TextIO

from tests.integration.raw import RawClient, fetched, make_batch, produced, values_in

EVERY_SECONDS = 0.05
_READ_WAIT_MS = 10_000


class GoodClient:
    def __init__(self, port: int, topic: str, notes: TextIO) -> None:
        self._port = port
        self._topic = topic
        self._notes = notes
        self._number = 0
        self._links: tuple[RawClient, RawClient] | None = None

    def round(self, due: float) -> None:
        self._number += 1
        try:
            if self._links is None:
                self._links = RawClient(self._port), RawClient(self._port)
            offset = self._there_and_back(b"good %d" % self._number, *self._links)
        except (OSError, AssertionError) as error:
            self._drop()
            self._note(f"error {type(error).__name__} {error}")
        else:
            self._note(f"ok {self._number} {offset} {(time.monotonic() - due) * 1000:.2f}")

    def _there_and_back(self, value: bytes, writer: RawClient, reader: RawClient) -> int:
        answer = produced(writer, self._topic, make_batch([value]))
        assert answer.error_code == 0, f"produce: {answer.error_code}"
        found = fetched(reader, self._topic, answer.base_offset, max_wait_ms=_READ_WAIT_MS)
        assert found.error_code == 0, f"fetch: {found.error_code}"
        assert values_in(found.records) == [value], "another value was read than written"
        return int(answer.base_offset)

    def _drop(self) -> None:
        for link in self._links or ():
            link.close()
        self._links = None

    def _note(self, line: str) -> None:
        self._notes.write(line + "\n")
        self._notes.flush()


def main(port: int, topic: str, path: str) -> None:
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
    with open(path, "w") as notes:
        client, due = GoodClient(port, topic, notes), time.monotonic()
        while not stopped.wait(max(0.0, due - time.monotonic())):
            client.round(due)
            due += EVERY_SECONDS


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
