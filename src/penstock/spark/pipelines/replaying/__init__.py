"""The archive back into a topic: every record where it was, in the order it had.

    manifest ── files of the topic ── waves: bounded ranges of offsets of every partition
        ── one Spark job per wave: read the files, each partition to one task, sort by offset
        ── the task looks at the end of its target partition, skips what is there, writes the rest

Each record carries where it came from (headers.py). That makes the target itself the record of how far a replay has
got: a run that was cut off, or a task that Spark repeats, finds the last record that arrived and goes on behind it.
"""
