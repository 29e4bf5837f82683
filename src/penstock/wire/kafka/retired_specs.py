"""Places in a retired partition that ListOffsets is asked for by timestamps of our own: public, for our tools and SDK.

Kafka's own names of places count down from -1; these are far from them. (-1001 to -1003 and -1005 were what brokers
asked each other this way in 0.1.0; see `wire.peers.retirement`.)
"""

# At its leader: how many offsets are left to move, and (as the time) into which partition.
LEFT = -1004
# At any broker, since the metadata tells: where readers of the number stopped when it was retired (-1: it is not), and
# (as the time) where a log that is grown under it begins.
LIMIT = -1006
