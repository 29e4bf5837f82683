"""faust-streaming: counts messages by key, in a table with a changelog.

Arguments: bootstrap, name, source, target, directory; and a processing guarantee, if any.
"""

import sys

import faust

# Of changelogs; those of the source must be as many, as the broker makes it (`num.partitions`).
PARTITIONS = 2

bootstrap, name, source, target, directory, *guarantee = sys.argv[1:]
app = faust.App(
    name,
    broker=f"kafka://{bootstrap}",
    datadir=directory,
    topic_partitions=PARTITIONS,
    web_enabled=False,
    broker_commit_interval=0.2,
    processing_guarantee=guarantee[0] if guarantee else "at_least_once",
)
words = app.topic(source, key_type=bytes, value_type=bytes, value_serializer="raw", key_serializer="raw")
counts = app.topic(target, key_type=bytes, value_type=bytes, value_serializer="raw", key_serializer="raw")
table = app.Table("counts", default=int, key_type=str)


@app.agent(words)
async def count(stream):
    async for key, _ in stream.items():  # noqa: PERF102 - not those of a dictionary
        table[key.decode()] += 1
        await counts.send(key=key, value=str(table[key.decode()]).encode())


sys.argv[1:] = ["worker", "-l", "info"]
app.main()
