"""What can go wrong with an archive, each with what to do next."""

from penstock.core.errors import PenstockError


class ArchiveError(PenstockError):
    """Root of this package's errors."""


class LakeError(ArchiveError):
    """The lake cannot be reached, read or written."""


class LakeFullError(LakeError):
    """No space is left in the lake."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"{where} is full ({why}): nothing of this round was archived; make room and run the same command again"
        )


class ManifestError(ArchiveError):
    """The manifest is damaged, or from a later version."""


class LockHeldError(ArchiveError):
    """Somebody else archives into this lake."""


class ConflictError(ArchiveError):
    """Another archiver committed to the lake while a round was under way: what that one wrote is what counts."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"another archiver has taken over {where}: nothing of this round was committed; stop one of the two"
        )


class GapError(ArchiveError):
    """Records were gone before the archive came for them, and that must not pass silently."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. Run again with --no-fail-on-data-loss to note them as lost in the manifest and archive the rest; "
            "penstock.archive.required=true on a topic keeps its records until they are archived"
        )


class HoleInLogError(GapError):
    """Records are gone between others: perhaps not everywhere, so nothing is taken for lost that nobody gave up."""

    def __init__(self, what: str) -> None:
        ArchiveError.__init__(
            self,
            f"{what}. Nothing of this round is archived, and retention deletes nothing of it where "
            "penstock.archive.required=true. If another replica has the records (`penstock verify TOPIC`), or a backup "
            "has the files, bring them back and run the same command again. If nobody has them, or the topic was "
            "compacted once, run it with --no-fail-on-data-loss: these offsets are noted as lost in the manifest, and "
            "the rest is archived",
        )


class CorruptFileError(ArchiveError):
    """An archived file is damaged or missing."""

    def __init__(
        self, where: str, why: str, *, instead: str = "skip it (skip_corrupt) and do without it"
    ) -> None:
        self.where = where
        # For those who go on all the same: they have done what may be done instead.
        self.known = f"the archived file {where} {why}: bring it back from a copy"
        super().__init__(f"{self.known}, or {instead}")
