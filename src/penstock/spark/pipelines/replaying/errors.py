"""What can go wrong with a replay, each with what to do next."""

from penstock.core.errors import PenstockError


class ReplayError(PenstockError):
    """Root of this package's errors."""


class TargetError(ReplayError):
    """The target topic is not fit for the replay."""


class OtherRecordsError(TargetError):
    """The target holds records that this replay has not written."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(
            f"{where} holds {what}: replay into a new topic, or put the records behind those with --append"
        )


class OtherWriterError(TargetError):
    """Somebody else wrote to the target meanwhile."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"somebody else writes to {where} while it is replayed to, so the order of the two is left to chance: "
            "stop that writer and replay into a new topic, or run again with --append"
        )


class RetiredTargetError(TargetError):
    """What is written to the partition goes to another one: nobody could see there how far a replay has got."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where} is being retired, and what is written to it goes to another partition: replay into a new topic"
        )
