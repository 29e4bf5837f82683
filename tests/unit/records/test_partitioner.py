"""The hash every producer of a topic must agree on."""

import pytest

from penstock.records.partitioner import murmur2, partition_for


# From the Java client's own tests; Java prints signed numbers.
@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_known_vectors(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


def test_the_partition_is_the_hash_without_its_sign() -> None:
    assert partition_for(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
    assert partition_for(b"anything", 1) == 0


def test_it_agrees_with_another_client() -> None:
    partitioner = pytest.importorskip("aiokafka.partitioner")
    keys = [bytes([i % 256, i // 256]) * (i % 7) for i in range(500)]
    assert [murmur2(key) for key in keys] == [partitioner.murmur2(key) & 0xFFFFFFFF for key in keys]
