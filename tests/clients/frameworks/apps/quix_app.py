"""Quix Streams: counts messages by key, in a state with a changelog.

Arguments: bootstrap, name, source, target, directory; and a processing guarantee, if any.
"""

import sys

from quixstreams import Application

bootstrap, name, source, target, directory, *guarantee = sys.argv[1:]
app = Application(
    broker_address=bootstrap,
    consumer_group=name,
    auto_offset_reset="earliest",
    state_dir=directory,
    commit_interval=0.2,
    processing_guarantee=guarantee[0] if guarantee else "at-least-once",
)


def count(_, state) -> str:
    number = state.get("number", 0) + 1
    state.set("number", number)
    return str(number)


words = app.dataframe(app.topic(source, value_deserializer="str"))
words.apply(count, stateful=True).to_topic(app.topic(target, value_serializer="str"))
app.run()
