"""Who is at the other end of a connection, whatever protocol is spoken over it."""

from typing import NamedTuple


class Principal(NamedTuple):
    """Whom a connection acts for, as Kafka writes it: `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


# In place of a broker's id, and of the epoch of its registration.
NO_BROKER = -1


class Session:
    """What is known of one connection, for as long as it lasts. Every request is handled with it at hand."""

    __slots__ = (
        "broker",
        "broker_epoch",
        "challenge",
        "client_id",
        "client_software_name",
        "client_software_version",
        "forwarded_by",
        "is_lost",
        "listener",
        "muted_until",
        "peer",
        "principal",
        "produces",
    )

    def __init__(self, listener: str, peer: str = "") -> None:
        self.listener = listener  # the name of the one it came in by
        self.principal = ANONYMOUS
        self.peer = peer  # the client's address
        self.is_lost = False  # nobody reads an answer any more
        self.client_id: str | None = None  # as last told
        # As ApiVersions told, which most clients begin with.
        self.client_software_name = ""
        self.client_software_version = ""
        self.produces = False  # whether records ever came this way
        # Until then (loop time) nothing is taken from the client; 0.0: it is not muted.
        self.muted_until = 0.0
        # The broker that it proved to be, of which registration; whether that still is one is asked at each use.
        self.broker = self.broker_epoch = NO_BROKER
        self.challenge = b""  # what a broker has to prove itself on
        # Of a request in an envelope, whose session is the client's at another broker: that broker.
        self.forwarded_by = NO_BROKER
