"""kafka-python as a producer of keyed values, until its input ends; see tests/integration/retiring/keyed.py."""

import json
import sys
import threading

from kafka import KafkaProducer


def main() -> None:
    wanted = json.loads(sys.argv[1])
    room = threading.Semaphore(wanted["queued"])
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
    producer = KafkaProducer(
        bootstrap_servers=wanted["bootstrap"],
        acks="all",
        enable_idempotence=wanted["idempotent"],
        linger_ms=2,
        batch_size=4096,
        metadata_max_age_ms=500,
    )

    # Two threads speak: this one, and the one that is told what became of records.
    speaking = threading.Lock()

    def say(line: str, *, flush: bool = False) -> None:
        with speaking:
            print(line, flush=flush)

    def stored(value: str) -> object:
        return lambda where: (say(f"stored {where.partition} {value}"), room.release())

    def failed(error: Exception) -> None:
        say(f"failed {error!r}")
        room.release()

    sent = 0
    while not stopped.is_set():
        if not room.acquire(blocking=False):
            say("full", flush=True)
            room.acquire()
        key = f"{wanted['name']}{sent % wanted['keys']}"
        value = f"{key}:{sent // wanted['keys']}"
        future = producer.send(wanted["topic"], key=key.encode(), value=value.encode())
        future.add_callback(stored(value)).add_errback(failed)
        sent += 1
        if sent % 100 == 0:
            sys.stdout.flush()
    producer.flush()
    producer.close()
    say("done", flush=True)


main()
