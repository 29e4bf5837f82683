"""Aborted transactions in more segments than a broker has the lists of in memory: SPEC D3."""

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import BrokerProcess, broker

SEGMENTS = 12


def read(running: BrokerProcess, start: int, stop: int) -> list[bytes]:
    """What a reader of what is committed gets, one small answer after the other."""
    consumer = Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.message.max.bytes": 100_000,
            "fetch.max.bytes": 1_000_000,
            "receive.message.max.bytes": 3_000_000,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 1,
            "queued.max.messages.kbytes": 1,
        }
    )
    consumer.assign([TopicPartition("t", 0, start)])
    found: list[bytes] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, "nothing, and no end"
            if message.error() or message.offset() >= stop:
                return found
            found.append(message.value()[:20])
    finally:
        consumer.close()


def test_an_abort_behind_readers_of_old_segments_is_not_shown() -> None:
    with broker({"penstock.transactions.enable": "true"}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("t", 1, config={"segment.bytes": str(1 << 20)})])["t"].result()
        options = {"bootstrap.servers": running.bootstrap, "linger.ms": 0}
        writer, plain = Producer({**options, "transactional.id": "w"}), Producer(options)
        writer.init_transactions(30)

        def abort(value: bytes) -> None:
            writer.begin_transaction()
            writer.produce("t", value, partition=0)
            assert writer.flush(30) == 0
            writer.abort_transaction(30)

        def write(size: int) -> None:
            plain.produce("t", b"plain" + b"." * size, partition=0)
            assert plain.flush(30) == 0

        for _ in range(SEGMENTS):
            abort(b"aborted")
            for size in [10] * 5 + [250_000] * 4:  # more than one answer for each segment
                write(size)
        abort(b"aborted in the last segment")
        write(10)
        running.stop()  # its lists are in files
        running.start()
        folder = running.data_dir / "topics/t/Partition-0"
        bases = sorted(int(path.stem) for path in folder.glob("*.log"))
        assert len(bases) == SEGMENTS
        read(running, bases[-1] - 1, bases[-1] - 1)  # by one that is a little behind
        read(running, 0, bases[8])  # and by one on its way from the beginning
        abort(b"aborted behind them")
        write(10)
        assert not [value for value in read(running, 0, 1 << 40) if value.startswith(b"aborted")]
