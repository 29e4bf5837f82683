"""How far compaction has come in a log, written down by whoever holds its lease."""

from penstock.core.jobs import Jobs
from penstock.core.lease import Hold
from penstock.storage.compaction.checkpoint import Cleaned, CleanedNote
from penstock.storage.log import Log


async def note_cleaned(jobs: Jobs, hold: Hold, log: Log, known: Cleaned) -> None:
    """StorageError: it may not be durable, and nothing may go by it."""
    if known != log.cleaned or log.cleaned_in_doubt:
        note = CleanedNote(log, known)
        await jobs.run(note.run, hold=hold)
        note.done()
