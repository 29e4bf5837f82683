"""What a group coordinator decides, without doing any of it: no I/O, no clock, no wire messages, no asyncio.

Every decision is a function `(state, request, now) -> Decision`: the records that must be committed, the replies that
may leave once they are, and (kept by the group itself) the moments at which to look again. `services.coordinator` is
the one runtime that appends, releases and calls back. Split by protocol: `classic` membership and `offsets` here, each
with its own rules; `records` has the layouts that they share with Kafka's tools.
"""
