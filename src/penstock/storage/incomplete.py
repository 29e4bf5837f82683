"""Logs of which nothing tells whether they are complete: each says so itself, in an empty file in its directory.

Files went behind its broker's back, as far as can be told: the log is not there, though others rely on it; its
recovery point is gone, or names what is missing; or an earlier version wrote that, which named nothing, and there is a
hole. What is left may lack any record, not only its end. It may even end where all others do, and begin where it
should: in sync or as the leader it would make whole replicas delete, cut or pass over what it lacks.

    noted       durably, before the log is made, cut or given another recovery point: a start that comes to nothing, a
                crash or a restart leaves it to the next one
    as long     it is asked last when the ends of logs decide who leads (`controller.election`), joins no in-sync
                replicas, and shows nothing to consumers
    until       it was copied anew from a leader (the mark goes with all that it had), or leads: then nobody has more

Where there is only one replica there is no mark: nobody has more.
"""

from pathlib import Path

from penstock.core.files import Files
from penstock.storage.layout import INCOMPLETE_FILE
from penstock.storage.log import Log


def note_incomplete(files: Files, directory: Path) -> None:
    files.open(directory / INCOMPLETE_FILE, create=True).close()
    files.sync_dir(directory)


def forget_incomplete(log: Log) -> None:
    """It leads: what it lacks, nobody has who was asked."""
    log.files.unlink(log.directory / INCOMPLETE_FILE)
    log.files.sync_dir(log.directory)
    log.is_incomplete = False
