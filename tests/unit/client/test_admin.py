from confluent_kafka import Uuid

from penstock.client.admin_topics import topic_id_text
from penstock.core.archive_progress import id_text


def test_topic_ids_are_written_as_kafka_writes_them() -> None:
    """`-` and `_` for the last two digits, so that what is shown can be used in `penstock.archive.progress`."""
    bits = 0x_FBEF_BEFB_EFBE_FFFF
    signed = bits - (1 << 64)
    text = topic_id_text(Uuid(signed, signed))
    assert text == id_text(bits.to_bytes(8, "big") * 2)
    assert {"-", "_"} <= set(text)
