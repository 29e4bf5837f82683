"""`python -m … URI SETTINGS`: create a file of a lake twice, the second time blind to the first."""

import json
import sys
from contextlib import suppress
from typing import Any

from tests.integration.spark.sessions import running_spark

from penstock.spark.pipelines.archive.hadoop_lake import HadoopLake


class Blind:
    """It looked when there was nothing yet."""

    def __init__(self, fs: Any) -> None:
        self._fs = fs

    def exists(self, _: Any) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)


def main(uri: str, settings: str) -> None:
    with running_spark("created-twice", json.loads(settings), log_level="OFF") as session:
        lake = HadoopLake(uri, session)
        lake.create("a", b"first")
        lake._fs = Blind(lake._fs)
        with suppress(FileExistsError):
            lake.create("a", b"second")
            sys.exit("it was created twice")
        assert lake.read("a") == b"first"


if __name__ == "__main__":
    main(*sys.argv[1:])
