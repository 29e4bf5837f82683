"""Doctor: the machine and the software around the broker."""

import platform
import resource
import time

from penstock.diagnosis.findings import Finding, fail, ok, warn

# 10,000 connections, the segments of a few thousand partitions, and the rest.
_FILES_WANTED = 16_384
_FILES_LEAST = 1024
# No clock that is right can be before this program was written.
_WRITTEN_EPOCH_SECONDS = 1_735_689_600  # 2025-01-01
_FAR_EPOCH_SECONDS = 4_102_444_800  # 2100-01-01


def system_findings() -> list[Finding]:
    return [
        _clock(time.time()),
        _files(*resource.getrlimit(resource.RLIMIT_NOFILE)),
        _python(),
        _librdkafka(),
    ]


def _clock(now_seconds: float) -> Finding:
    text = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_seconds))
    if _WRITTEN_EPOCH_SECONDS <= now_seconds < _FAR_EPOCH_SECONDS:
        return ok("clock", text)
    return fail("clock", f"it says {text}", "set the clock (NTP): retention and timestamps follow it")


def _files(soft: int, hard: int) -> Finding:
    check = "open files"
    if hard == resource.RLIM_INFINITY or hard >= _FILES_WANTED:
        raised = "" if soft == hard else f", the broker raises it from {soft:,} when it starts"
        shown = "no limit" if hard == resource.RLIM_INFINITY else f"up to {hard:,}"
        return ok(check, shown + raised)
    found = f"at most {hard:,}, also after the broker raised its limit"
    advice = f"allow {_FILES_WANTED:,}: `ulimit -Hn`, LimitNOFILE= in systemd, or --ulimit nofile= in Docker"
    return (fail if hard < _FILES_LEAST else warn)(check, found, advice)


def _python() -> Finding:
    version = platform.python_version()
    from importlib.metadata import version as version_of

    try:
        import uvloop  # noqa: F401 - whether it loads is the question
    except ImportError as error:
        return fail("python", f"{version}, without uvloop: {error}", "pip install --force-reinstall uvloop")
    return ok("python", f"{version}, uvloop {version_of('uvloop')}")


def _librdkafka() -> Finding:
    try:
        import confluent_kafka
    except ImportError as error:
        return fail("librdkafka", str(error), "pip install --force-reinstall confluent-kafka")
    return ok(
        "librdkafka", f"{confluent_kafka.libversion()[0]} (confluent-kafka {confluent_kafka.version()})"
    )
