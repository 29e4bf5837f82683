"""A broker with a planted bug: batches reach the file 10 ms after they were acknowledged."""

import asyncio

from penstock.cli.main import main
from penstock.core.files import Buffer, OsFile

_write = OsFile.pwrite


def late(self: OsFile, data: Buffer, offset: int) -> None:
    if self.path.suffix == ".log":
        asyncio.get_running_loop().call_later(0.01, _write, self, bytes(data), offset)
    else:
        _write(self, data, offset)


OsFile.pwrite = late  # type: ignore[method-assign]
main()
