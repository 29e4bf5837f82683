"""Quix Streams: counts messages by key, in a state with a changelog.

Arguments: bootstrap, name, source, target, directory.
"""

import sys

from quixstreams import Application

bootstrap, name, source, target, directory = sys.argv[1:]
app = Application(
    broker_address=bootstrap,
    consumer_group=name,
    auto_offset_reset="earliest",
    state_dir=directory,
    commit_interval=0.2,
)


def count(_, state) -> str:
    number = state.get("number", 0) + 1
    state.set("number", number)
    return str(number)


words = app.dataframe(app.topic(source, value_deserializer="str"))
words.apply(count, stateful=True).to_topic(app.topic(target, value_serializer="str"))
app.run()
