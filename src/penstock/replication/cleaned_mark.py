"""How far compaction has come in a log, written down by whoever holds its lease."""

from penstock.core.jobs import Jobs
from penstock.core.lease import Hold
from penstock.storage.compaction.checkpoint import Cleaned, CleanedNote
from penstock.storage.log import Log


async def note_cleaned(jobs: Jobs, hold: Hold, one: Log, known: Cleaned) -> None:
    """StorageError: it may not be durable, and nothing may go by it."""
    if known != one.cleaned or one.cleaned_in_doubt:
        note = CleanedNote(one, known)
        await jobs.run(note.run, hold=hold)
        note.done()
