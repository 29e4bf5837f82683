"""CRC-32C as Kafka uses it, in hardware where the CPU has it."""

from crc32c import crc32c

__all__ = ["crc32c"]
