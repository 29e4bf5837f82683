"""A topic from its archive, then live: without a gap or a repeat.

Positions are offsets, one per partition, and nothing but them decides what comes next: what is below a position was
printed or is known to be lost. The archive is read up to where the manifest says that it ends, then the broker from
exactly there. Whenever the broker no longer has a position, because retention was faster, the manifest is read again:
most likely the archive has it by now. Only what neither has is a gap, and is reported.
"""
