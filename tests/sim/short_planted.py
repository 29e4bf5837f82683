"""Bugs that show only where descriptors run out, planted into the simulated cluster."""

from contextlib import suppress

import pytest
from tests.sim.cluster_planted import Plant

from penstock.core.errors import TooManyFilesError
from penstock.storage.checkpoint import SyncJob


def takes_a_short_sync_for_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be opened is taken for durable: the name of a new segment, a recovery point."""
    honest = SyncJob.run

    def run(job: SyncJob) -> None:
        with suppress(TooManyFilesError):
            honest(job)
        job.checkpointed = job.checkpoint is not None

    monkeypatch.setattr(SyncJob, "run", run)


# Found by seeds 0, 3 and 5.
PLANTED: list[Plant] = [takes_a_short_sync_for_done]
