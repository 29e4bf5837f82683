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


class OtherRunError(TargetError):
    """The same replay runs twice: what this one was about to write is there. Or an unclean election cut the target."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"another run of this replay writes to {where} (or that has lost records since this one looked), so this "
            "one stops, and has written nothing twice: see that no other one runs, and run again, which goes on there"
        )


class DoubledError(TargetError):
    """Two runs at once, of a version that did not keep them apart."""

    def __init__(self, where: str, offset: int) -> None:
        super().__init__(
            f"{where} holds records of this replay twice (at offset {offset} they begin anew): two runs wrote at once; "
            "delete the topic and replay into a new one"
        )


class TargetRemadeError(TargetError):
    """What was replayed before went with the old topic."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"{topic} was deleted and made again while it was replayed to, and what was there is gone: run again, to "
            "replay all of it into the new one"
        )


class RetiredTargetError(TargetError):
    """What is written to the partition goes to another one: nobody could see there how far a replay has got."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where} is being retired, and what is written to it goes to another partition: replay into a new topic"
        )
