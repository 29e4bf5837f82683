"""FastStream: repeats every message in capital letters. Arguments: bootstrap, name, source, target, directory."""

import asyncio
import sys

from faststream import FastStream
from faststream.confluent import KafkaBroker

bootstrap, name, source, target, _ = sys.argv[1:]
broker = KafkaBroker(bootstrap)


@broker.subscriber(source, group_id=name, auto_offset_reset="earliest")
@broker.publisher(target)
async def shout(text: str) -> str:
    return text.upper()


asyncio.run(FastStream(broker).run())
