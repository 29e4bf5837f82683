"""What kafka-python's fixtures import as `test.service`, which its source distribution leaves out.

Its tests run against a broker that is there already, so nothing is ever spawned.
"""

from typing import NoReturn


class ExternalService:
    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def open(self) -> None:
        """It runs."""

    def close(self) -> None:
        """It goes on."""

    def stop(self) -> None:
        """It goes on."""

    def dump_logs(self) -> None:
        """Its log is its owner's."""


class SpawnedService:
    def __init__(self, *_: object) -> NoReturn:
        raise NotImplementedError("a broker of the test's own")
