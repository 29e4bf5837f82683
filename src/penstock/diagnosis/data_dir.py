"""Doctor: the data directory and the disk below it."""

import fcntl
import os
import pwd
import time
from pathlib import Path

from penstock.core.os_files import OsFiles
from penstock.core.text import count_text, size_text
from penstock.diagnosis.findings import Finding, fail, ok, warn
from penstock.storage.data_format import UnusableError, check_data_dir, read_identity

# Room for a few segments; below it a busy broker has minutes left.
_FREE_BYTES_LOW = 5 * 1000**3
_FREE_BYTES_LEAST = 500 * 1000**2
_FREE_SHARE_LOW = 0.05
_PROBE_BYTES = 16 * 1024 * 1024
_PROBE_SYNCS = 10
_WRITE_SLOW_BYTES_PER_SECOND = 50 * 1000**2
_SYNC_SLOW_SECONDS = 0.02
# A file from later than this in the future was not written under the present clock.
_AHEAD_SECONDS = 60.0
_FILES_LOOKED_AT_MAX = 10_000

_PASSING = {
    "tmpfs": "memory",
    "ramfs": "memory",
    "overlay": "a container's own layer",
    "aufs": "a container's own layer",
}
_REMOTE = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "fuse.sshfs",
    "afs",
    "ceph",
    "glusterfs",
    "fuse.glusterfs",
}


def data_findings(data_dir: Path) -> list[Finding]:
    # It needs the storage, and every command the rest of this module.
    from penstock.diagnosis.quarantine import quarantine

    base = _existing(data_dir)
    findings = [_state(data_dir)]
    if not base.is_dir():
        return findings
    findings += [_file_system(base), _space(base)]
    if data_dir.is_dir():
        findings += [quarantine(data_dir, is_running=is_locked(data_dir)), _newest(data_dir)]
    if os.access(base, os.W_OK | os.X_OK):
        findings.append(_speed(base))
    return findings


def _existing(path: Path) -> Path:
    """The directory itself, or the nearest one above it that exists."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _state(data_dir: Path) -> Finding:
    check = "data dir"
    base = _existing(data_dir)
    if not base.is_dir():
        return fail(check, f"{base} is a file", "name a directory with --data-dir")
    if not os.access(base, os.W_OK | os.X_OK):
        return fail(
            check, f"{base} cannot be written", f"{permission_advice(base)}, or name another --data-dir"
        )
    if not data_dir.exists():
        return ok(check, f"{data_dir} does not exist yet; the first start makes it")
    try:
        check_data_dir(OsFiles(), data_dir)
        node = read_identity(OsFiles(), data_dir).node_id
    except FileNotFoundError:
        return ok(check, f"{data_dir} holds no broker's data yet")
    except UnusableError as error:
        return fail(check, error.found, error.advice)
    whose = f"{data_dir}, node {node}, {count_text(_partitions(data_dir), 'partition')}"
    if is_locked(data_dir):
        return ok(check, f"{whose}, in use by a running broker")
    if is_clean(data_dir):
        return ok(check, f"{whose}, closed cleanly")
    return warn(
        check, f"{whose}, not closed cleanly", "nothing to do: the next start checks the end of every log"
    )


def _partitions(data_dir: Path) -> int:
    return sum(1 for _ in data_dir.glob("topics/*/Partition-*"))


def is_clean(data_dir: Path) -> bool:
    """Whether the last broker on it closed every log."""
    return (data_dir / "clean-shutdown").exists()


def on_disk(clean: bool) -> str:
    """What a broker that has stopped may say of its data."""
    return "everything is on disk" if clean else "the next start will look for what is on disk"


def is_locked(data_dir: Path) -> bool:
    """Whether a broker holds the directory; looks without taking it away from one that starts."""
    try:
        fd = os.open(data_dir / ".lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def _file_system(base: Path) -> Finding:
    check = "file system"
    kind = _kind(base, Path("/proc/self/mountinfo"))
    if kind is None:
        return ok(check, "unknown kind")
    if kind in _PASSING:
        return warn(
            check, f"{base} is on {kind}: {_PASSING[kind]}", "fine for trying out; keep real data on a disk"
        )
    if kind in _REMOTE:
        return warn(
            check,
            f"{base} is on {kind}, over the network",
            "use a local disk: locks and syncs may not hold there",
        )
    return ok(check, kind)


def _kind(base: Path, mounts: Path) -> str | None:
    """The type of the file system `base` is on: that of the longest mount point above it."""
    best, kind = -1, None
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4].replace("\\040", " ")
        if base.resolve().is_relative_to(point) and len(point) >= best:
            best, kind = len(point), after.split(" ")[0]
    return kind


def _space(base: Path) -> Finding:
    check = "disk space"
    stat = os.statvfs(base)
    free, total = stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize
    found = f"{size_text(free)} of {size_text(total)} free"
    advice = "make room, shorten retention.ms or retention.bytes, or use a larger disk"
    if free < _FREE_BYTES_LEAST:
        return fail(check, found, advice)
    if free < _FREE_BYTES_LOW or free < total * _FREE_SHARE_LOW:
        return warn(check, found, advice)
    return ok(check, found)


def _newest(data_dir: Path) -> Finding:
    """Files from the future mean that the clock went back: retention and timestamps would be wrong."""
    newest = 0.0
    for number, path in enumerate(data_dir.glob("topics/*/Partition-*/*.log")):
        if number >= _FILES_LOOKED_AT_MAX:
            break
        try:
            newest = max(newest, path.stat().st_mtime)
        except OSError:
            continue  # deleted meanwhile
    ahead = newest - time.time()
    if ahead > _AHEAD_SECONDS:
        return fail(
            "data times",
            f"the newest data is {ahead:,.0f} s in the future",
            "set the clock: it was later when this was written",
        )
    return ok("data times", "none in the future")


def _speed(base: Path) -> Finding:
    """A hint, not a benchmark: 16 MB written and synced once, then small syncs as acknowledgements need them."""
    # For doctor alone: a broker that starts needs the rest of this module, too.
    import statistics
    import tempfile

    check = "disk speed"
    block = os.urandom(1024 * 1024)
    try:
        with tempfile.TemporaryFile(dir=base, prefix=".doctor-") as file:
            fd = file.fileno()
            began = time.perf_counter()
            for _ in range(_PROBE_BYTES // len(block)):
                os.write(fd, block)
            os.fdatasync(fd)
            rate = _PROBE_BYTES / (time.perf_counter() - began)
            syncs = []
            for _ in range(_PROBE_SYNCS):
                os.write(fd, block[:4096])
                began = time.perf_counter()
                os.fdatasync(fd)
                syncs.append(time.perf_counter() - began)
    except OSError as error:
        return fail(
            check, f"a test file could not be written: {error.strerror}", "look at the disk, then try again"
        )
    sync = statistics.median(syncs)
    found = f"{size_text(rate)} a second, a small sync takes {sync * 1000:.1f} ms"
    if rate < _WRITE_SLOW_BYTES_PER_SECOND or sync > _SYNC_SLOW_SECONDS:
        return warn(
            check,
            found,
            "a local SSD is faster; penstock.ack.after=written acknowledges before the disk has it",
        )
    return ok(check, found)


def permission_advice(path: Path) -> str:
    """What makes a directory writable to us: only its owner may change its permissions."""
    owner = path.stat().st_uid
    if owner == os.geteuid():
        return f"give yourself write permission (chmod u+rwx {path})"
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = str(owner)
    return (
        f"it belongs to {name}: run the broker as {name}, or make it yours (sudo chown -R $(id -un) {path})"
    )
