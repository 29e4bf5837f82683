"""Record batches, built field by field so that any of them can be wrong.

base offset 8 | length 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4
base timestamp 8 | max timestamp 8 | producer id 8 | epoch 2 | base sequence 4 | count 4 | records
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from crc32c import crc32c

HEAD = struct.Struct(">qiibI")
TAIL = struct.Struct(">hiqqqhii")
HEADER_BYTES = HEAD.size + TAIL.size
# What `length` does not count: the base offset and itself.
BEFORE_LENGTH = 12


def varint(number: int) -> bytes:
    zigzag = ((number << 1) ^ (number >> 63)) & ((1 << 64) - 1)
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    delta: int,
    value: bytes | None,
    key: bytes | None = None,
    headers: tuple[tuple[bytes, bytes | None], ...] = (),
    timestamp_delta: int = 0,
) -> bytes:
    body = b"\x00" + varint(timestamp_delta) + varint(delta) + _sized(key) + _sized(value)
    body += varint(len(headers)) + b"".join(_sized(name) + _sized(content) for name, content in headers)
    return varint(len(body)) + body


@dataclass(frozen=True)
class Batch:
    """A good batch unless told otherwise; `None` stands for the right value."""

    values: tuple[bytes | None, ...] = (b"value",)
    keys: tuple[bytes | None, ...] | None = None
    timestamp_ms: int = 0
    attributes: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    base_offset: int = 0
    leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None
    length: int | None = None
    count: int | None = None
    last_offset_delta: int | None = None
    max_timestamp_ms: int | None = None
    payload: bytes | None = None

    def encode(self) -> bytes:
        number = len(self.values)
        keys = self.keys if self.keys is not None else (None,) * number
        payload = self.payload
        if payload is None:
            payload = b"".join(
                record(delta, value, key)
                for delta, (value, key) in enumerate(zip(self.values, keys, strict=True))
            )
        tail = TAIL.pack(
            self.attributes,
            number - 1 if self.last_offset_delta is None else self.last_offset_delta,
            self.timestamp_ms,
            self.timestamp_ms if self.max_timestamp_ms is None else self.max_timestamp_ms,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            number if self.count is None else self.count,
        )
        tail += payload
        crc = crc32c(tail) if self.crc is None else self.crc
        length = HEAD.size - BEFORE_LENGTH + len(tail) if self.length is None else self.length
        return HEAD.pack(self.base_offset, length, self.leader_epoch, self.magic, crc) + tail
