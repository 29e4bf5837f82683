"""The last thing a broker does with its logs: what is durable and written down needs no recovery at the next start."""

from pathlib import Path

from penstock.core.files import Files
from penstock.storage.checkpoint import checkpoint_all
from penstock.storage.log import Log


def make_durable(logs: list[Log], files: Files, directory: Path) -> bool:
    """Sync and checkpoint every log; False when one could not be, so that the next start looks for itself."""
    jobs = []
    for log in logs:
        if not log.failed and not log.is_checkpointed:
            jobs.append(log.sync_job(checkpoint=True))
            jobs[-1].sync_data()
    checkpoint_all(files, directory, jobs)
    return not any(log.failed for log in logs)
