"""Frames that are not requests, or not ones a broker knows: closed or answered, as on both sides."""

from __future__ import annotations

import struct

from tests.integration.scenarios.raw import RawConnection

ANSWER_TIMEOUT_S = 1.0
REQUEST_MAX_BYTES = 104_857_600
CLOSED, NO_ANSWER, ANSWERED = "closed", "no answer", "answered"


def _header(api_key: int, version: int, *, flexible: bool = False, client: bytes = b"raw") -> bytes:
    header = struct.pack(">hhih", api_key, version, 7, len(client)) + client
    return header + b"\x00" if flexible else header


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _api_versions(version: int, body: bytes = b"") -> bytes:
    return _frame(_header(18, version, flexible=version >= 3) + body)


def _metadata(version: int, body: bytes, tags: bytes = b"") -> bytes:
    return _frame(_header(3, version) + tags + body)


_NO_TOPICS = struct.pack(">i", 0)
_FLEXIBLE_NO_TOPICS = b"\x01\x00\x00\x00"

FRAMES: tuple[tuple[str, bool, bytes], ...] = (
    ("unknown API 999", False, _frame(_header(999, 0))),
    ("unknown API -1", False, _frame(_header(-1, 0))),
    ("API of controllers only", False, _frame(_header(52, 0, flexible=True))),
    ("API that Kafka no longer has", False, _frame(_header(4, 0))),
    *((f"Metadata version {version}", False, _metadata(version, b"")) for version in (14, 99, -1)),
    *((f"Produce version {version}", False, _frame(_header(0, version))) for version in (0, 1, 2, 14)),
    *((f"Fetch version {version}", False, _frame(_header(1, version))) for version in (0, 3, 19)),
    *((f"ListOffsets version {version}", False, _frame(_header(2, version))) for version in (0, 12)),
    *((f"CreateTopics version {version}", False, _frame(_header(19, version))) for version in (0, 1, 8)),
    *(
        (f"ApiVersions version {version}", False, _api_versions(version, b"\x02a\x021\x00"))
        for version in (5, 99)
    ),
    ("ApiVersions version -1", False, _frame(_header(18, -1))),
    ("ApiVersions version 0", True, _api_versions(0)),
    ("ApiVersions null names", False, _api_versions(3, b"\x00\x00\x00")),
    ("ApiVersions cut short", False, _api_versions(3)),
    ("empty frame", False, struct.pack(">i", 0)),
    ("negative length", False, struct.pack(">i", -1)),
    ("lowest length", False, struct.pack(">i", -(2**31))),
    ("three bytes", False, _frame(b"abc")),
    ("header without a client id", False, _frame(struct.pack(">hhi", 3, 1, 7))),
    ("null client id", True, _frame(struct.pack(">hhih", 3, 1, 7, -1) + _NO_TOPICS)),
    ("client id of length -2", False, _frame(struct.pack(">hhih", 3, 1, 7, -2) + _NO_TOPICS)),
    ("client id longer than the frame", False, _frame(struct.pack(">hhih", 3, 1, 7, 500) + _NO_TOPICS)),
    ("client id not UTF-8", False, _frame(_header(3, 1, client=b"\xff\xfe") + _NO_TOPICS)),
    ("one byte over the largest frame", False, struct.pack(">i", REQUEST_MAX_BYTES + 1)),
    ("length of 2 GB", False, struct.pack(">i", 2**31 - 1)),
    ("largest frame, nothing follows", True, struct.pack(">i", REQUEST_MAX_BYTES)),
    ("an HTTP request", False, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("a TLS hello", False, bytes.fromhex("16030100c8010000c4030353")),
    ("Metadata count far beyond", False, _metadata(1, struct.pack(">i", 2**31 - 1))),
    ("Metadata count -2", False, _metadata(0, struct.pack(">i", -2))),
    ("Metadata topic not UTF-8", False, _metadata(4, struct.pack(">ih", 1, 2) + b"\xff\xfe\x00")),
    ("Metadata bool of 2", True, _metadata(4, _NO_TOPICS + b"\x02")),
    ("Metadata bytes behind", True, _metadata(1, _NO_TOPICS + b"behind")),
    ("varint too large", False, _metadata(12, b"\xff\xff\xff\xff\x0f", b"\x00")),
    ("varint too long", False, _metadata(12, b"\xff\xff\xff\xff\xff\x0f", b"\x00")),
    ("unknown tag in the body", True, _metadata(12, b"\x01\x00\x00\x01\x63\x03abc", b"\x00")),
    ("unknown tag in the header", True, _metadata(12, _FLEXIBLE_NO_TOPICS, b"\x01\x63\x03abc")),
    ("tags out of order", True, _metadata(12, _FLEXIBLE_NO_TOPICS, b"\x02\x63\x00\x05\x00")),
    ("tag longer than the frame", False, _metadata(12, b"\x01\x00\x00\x01\x63\x7fabc", b"\x00")),
    ("more tags than bytes", False, _metadata(12, b"\x01\x00\x00\x7f", b"\x00")),
    ("SaslHandshake without SASL", False, _frame(_header(17, 1) + struct.pack(">h", 5) + b"PLAIN")),
)


def exchange_frame(port: int, data: bytes) -> str:
    """What the broker does with these bytes, on a connection of their own."""
    with RawConnection(port, ANSWER_TIMEOUT_S) as connection:
        try:
            connection.send_bytes(data)
            return CLOSED if connection.receive() is None else ANSWERED
        except TimeoutError:
            return NO_ANSWER
        except OSError:
            return CLOSED
