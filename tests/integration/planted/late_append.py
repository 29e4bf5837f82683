"""A broker with a planted bug: batches reach the file 10 ms after they were acknowledged."""

import asyncio

from penstock.cli.main import main
from penstock.core.files import Buffer
from penstock.core.os_files import OsFile

_write = OsFile.pwrite


def late(self: OsFile, data: Buffer, offset: int) -> None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # a thread, which recovers a log: nothing is acknowledged there
        loop = None
    if self.path.suffix == ".log" and loop is not None:
        loop.call_later(0.01, _write, self, bytes(data), offset)
    else:
        _write(self, data, offset)


OsFile.pwrite = late  # type: ignore[method-assign]
main()
