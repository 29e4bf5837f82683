"""Jars from Maven by package name, kept in the user's cache: only the first use needs the network."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

from tools.peers.process import PeerError

INSTALLED_MARK = ".complete"


def executable(name: str, hint: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise PeerError(f"this peer needs `{name}`: {hint}")
    return path


def java() -> str:
    return executable("java", "install a Java runtime, 17 or newer (Debian: openjdk-17-jre-headless)")


def pinned(pom: Path, name: str) -> str:
    """The version that the property `name` of the pom has."""
    found = re.search(rf"<{re.escape(name)}>([^<]+)<", pom.read_text())
    if found is None:
        raise PeerError(f"no {name} in {pom}")
    return found.group(1)


def cache_dir() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "penstock"


def jars(pom: Path, name: str) -> Path:
    """The directory `name` of the cache with the runtime jars of a pom; downloads them when it is not there yet."""
    target = cache_dir() / name
    if (target / INSTALLED_MARK).exists():
        return target
    maven = executable("mvn", "install Apache Maven (Debian: maven)")
    target.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{name}.lock").open("w") as lock:
        # Two test runs may come here at once; the second finds the jars complete.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / INSTALLED_MARK).exists():
            _copy_jars(maven, pom, target)
            (target / INSTALLED_MARK).touch()
    return target


def _copy_jars(maven: str, pom: Path, target: Path) -> None:
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={target}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise PeerError(f"Maven could not download {target.name}: {lines[0] if lines else done.stderr}")
