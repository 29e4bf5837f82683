"""Clumsy and hostile clients that have to be harmless, each in any size: what `test_harmless` runs."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from struct import pack

from tests.abuse.scene import Attacked, Scene
from tests.integration.raw import (
    FETCH_VERSION,
    RawClient,
    create_topic,
    fetch_request,
    make_batch,
    produce_request,
    produced,
    wait_until,
)
from tests.integration.working import Working

from penstock.core.limits import PRODUCERS_MAX
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.compression import Codec
from penstock.records.reader import Record
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import delete_topics, incremental_alter_configs, init_producer_id

MEGABYTE = 1 << 20
SLOW_TURNS = 100  # of the good client, so that one late round is no p99
WILD_TIMES_MS = (-(1 << 63), -1, 0, (1 << 62), (1 << 63) - 1)
WILD_CONFIGS = {
    "segment.ms": "1",
    "segment.bytes": str((1 << 31) - 1),
    "retention.ms": str((1 << 63) - 1),
    "retention.bytes": "-9",
    "max.message.bytes": "-1",
    "cleanup.policy": "compact,delete,nothing",
    "min.insync.replicas": "2147483648",
    "message.timestamp.type": "\0",
    "no.such.setting": "x" * 30_000,
}
TOPIC_RESOURCE = 2
SET = 0


def silent_connections(scene: Attacked, number: int) -> None:
    """A quarter each says nothing, a size and no more, a byte now and then, or goodbye and stays."""
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(scene.port)) for _ in range(number)]
        for client in clients[number // 4 :]:
            client.send_bytes(pack(">i", 1000))
        for client in clients[3 * number // 4 :]:
            client.socket.shutdown(1)
        for _ in range(10):
            for client in clients[number // 2 : 3 * number // 4]:
                client.send_bytes(b"\0")
            scene.wait_for_rounds(1)


def slow_readers(scene: Attacked, number: int) -> None:
    """Each asks for 100 MB, and reads a little of it now and then."""
    with ExitStack() as stack:
        owner = stack.enter_context(RawClient(scene.port))
        assert create_topic(owner, "slow").error_code == 0
        for index in range(8):
            value = b"%d" % index * 1_000_000
            answer = produced(owner, "slow", make_batch([value]))
            scene.note("slow", 0, answer.base_offset, value)
        clients = [
            stack.enter_context(RawClient(scene.port, receive_buffer_bytes=4096)) for _ in range(number)
        ]
        request = fetch_request("slow", 0, partition_max_bytes=MEGABYTE)
        for client in clients:
            frames = [client.frame(ApiKey.FETCH, FETCH_VERSION, request) for _ in range(100)]
            client.send_bytes(b"".join(frames))
        for _ in range(SLOW_TURNS):
            for client in clients:
                client.socket.recv(1000)
            scene.wait_for_rounds(1)


def producer_ids(scene: Scene, number: int) -> None:
    """Every message has a producer of its own, who never comes back; of each partition nearly as many as it knows."""
    partitions = number // PRODUCERS_MAX + 1
    with RawClient(scene.port) as client:
        assert create_topic(client, "ids", partitions).error_code == 0
        asking = init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        first = client.call(ApiKey.INIT_PRODUCER_ID, 4, asking).producer_id
        for at in range(0, number, 500):
            some = range(first + at, first + min(at + 500, number))
            for producer in some:
                options = BatchOptions(producer_id=producer, producer_epoch=0, base_sequence=0)
                request = produce_request(
                    "ids", [(producer % partitions, make_batch([b"%d" % producer], options))]
                )
                client.send_bytes(client.frame(ApiKey.PRODUCE, 9, request))
            for producer in some:
                answer = client.receive().responses[0].partition_responses[0]
                assert answer.error_code == 0
                if producer % 100 == 0:
                    scene.note("ids", producer % partitions, answer.base_offset, b"%d" % producer)


def compression_bombs(scene: Scene, number: int) -> None:
    """40 MB of nothing in 40 kB, one after the other, to a topic whose batches are opened."""
    with RawClient(scene.port) as client:
        assert create_topic(client, "bombs", 1, {"cleanup.policy": "compact"}).error_code == 0
        records = [Record(offset=0, timestamp=1, key=b"k", value=bytes(40 * MEGABYTE))]
        bomb = build_batch(records, BatchOptions(codec=Codec.GZIP))
        for _ in range(number):
            produced(client, "bombs", bomb)  # taken or refused; never felt by others


def wild_values(scene: Scene, number: int) -> None:
    """Times from before and after all time; settings that make no sense."""
    with RawClient(scene.port) as client:
        for turn in range(number):
            topic = f"wild-{turn}"
            assert create_topic(client, topic).error_code == 0
            for time_ms in WILD_TIMES_MS:
                answer = produced(client, topic, make_batch([b"wild"], timestamp=time_ms))
                if not answer.error_code:
                    scene.note(topic, 0, answer.base_offset, b"wild")
            for name, value in WILD_CONFIGS.items():
                create_topic(client, f"{topic}-{name}", 1, {name: value})
                _alter(client, topic, name, value)


def _alter(client: RawClient, topic: str, name: str, value: str) -> None:
    config = incremental_alter_configs.AlterableConfig(name=name, config_operation=SET, value=value)
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[config]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)


class Writing(Working):
    """Writes to a topic all the time, whatever becomes of it."""

    def __init__(self, port: int, topic: str) -> None:
        super().__init__()
        self._port = port
        self._topic = topic
        self.stored = 0

    def _run(self) -> None:
        with RawClient(self._port) as client:
            while not self._stopped.is_set():
                answer = produced(client, self._topic, make_batch([bytes(1000)]))
                self.stored += answer.error_code == 0


def deletions_under_load(scene: Scene, number: int) -> None:
    with RawClient(scene.port) as client:
        assert create_topic(client, "again", 4).error_code == 0
        with Writing(scene.port, "again") as writing:
            for _ in range(number):
                stored = writing.stored
                request = delete_topics.DeleteTopicsRequest(topic_names=["again"], timeout_ms=30_000)
                assert client.call(ApiKey.DELETE_TOPICS, 5, request).responses[0].error_code == 0
                assert create_topic(client, "again", 4).error_code == 0
                wait_until(lambda stored=stored: writing.stored > stored, "it is written to again")


def stopped_for_a_while(scene: Scene, seconds: int) -> None:
    """SIGSTOP: everybody waits, nobody is dropped."""
    scene.process.pause()
    threading.Event().wait(seconds)
    scene.process.resume()
    scene.wait_for_rounds(5)


def told_to_end_under_load(scene: Scene, clients: int) -> None:
    """SIGTERM while many write: what was acknowledged is there."""
    with RawClient(scene.port) as client:
        assert create_topic(client, "ending").error_code == 0
    threads = [threading.Thread(target=_write_until_it_ends, args=(scene,)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    scene.wait_for_rounds(5)
    scene.process.stop()
    for thread in threads:
        thread.join()
    scene.process.start()
    scene.watch_anew()
    scene.wait_for_rounds(5)


def _write_until_it_ends(scene: Scene) -> None:
    try:
        with RawClient(scene.port) as client:
            for number in range(1_000_000):
                value = b"%d %d" % (threading.get_ident(), number)
                answer = produced(client, "ending", make_batch([value]))
                if answer.error_code == 0:
                    scene.note("ending", 0, answer.base_offset, value)
    except OSError:
        return


Hostile = Callable[[Scene, int], None]
