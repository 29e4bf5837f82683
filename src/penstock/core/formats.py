"""What all formats on disk and in the coordination store share: each says its version, and a newer one is refused.

A number is raised when releases before could not read what is written, or would misread it. What names no version was
written before its format had one. Whoever finds a newer one must neither read it as if it were known nor write over it:
no release can tell what a later one meant.
"""

from penstock.core.errors import StorageError


class NewerFormatError(StorageError):
    """A newer release wrote it. It is not damaged: nothing may be rebuilt, set aside or written in its place."""


def check_version(what: object, found: int, known: int) -> None:
    if found > known:
        raise NewerFormatError(newer(what, found, known))


def newer(what: object, found: int, known: int) -> str:
    return (
        f"{what} has version {found}, and this release reads up to {known}: "
        "start the newer release that wrote it (docs/upgrade.md)"
    )
