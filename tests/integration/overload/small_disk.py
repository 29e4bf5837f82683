"""A disk that can be filled: a small file system of its own where we may mount one, a stand-in where we may not."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

SIZE_BYTES = 24 << 20
FULL_DISK_ENTRY = Path(__file__).parents[1] / "planted" / "full_disk.py"


class MountedDisk:
    """tmpfs: writes fail with ENOSPC exactly where a real disk's would."""

    entry: tuple[str, ...] = ("-m", "penstock.cli.main")

    def __init__(self, directory: Path, inodes: int | None = None) -> None:
        self.directory = directory
        self._ballast = directory / "ballast"
        options = f"size={SIZE_BYTES}" + ("" if inodes is None else f",nr_inodes={inodes}")
        _mount("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory))

    def fill(self) -> None:
        """Take all space that is left."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def take_inodes(self) -> None:
        """All that are left, by empty files."""
        hoard = self._ballast.with_name("hoard")
        hoard.mkdir(exist_ok=True)
        with suppress(OSError):
            for number in count(sum(1 for _ in hoard.iterdir())):
                (hoard / str(number)).touch()

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)
        shutil.rmtree(self._ballast.with_name("hoard"), ignore_errors=True)

    def remove(self) -> None:
        _mount("umount", "--lazy", str(self.directory))


class PlantedDisk:
    """A broker whose files say ENOSPC while a flag file is there: no rights needed."""

    entry: tuple[str, ...] = (str(FULL_DISK_ENTRY),)

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._flag = directory / "full"
        os.environ["FULL_DISK_FLAG"] = str(self._flag)

    def fill(self) -> None:
        self._flag.touch()

    def free(self) -> None:
        self._flag.unlink(missing_ok=True)

    def remove(self) -> None:
        del os.environ["FULL_DISK_FLAG"]


Disk = MountedDisk | PlantedDisk


def may_mount(directory: Path) -> bool:
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    try:
        _mount("mount", "-t", "tmpfs", "tmpfs", str(directory))
        _mount("umount", str(directory))
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _mount(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
