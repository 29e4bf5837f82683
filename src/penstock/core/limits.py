"""Named bounds that are not settings: one place for every queue, buffer and loop, with its reason."""

# A connection starts with this and grows to what its requests need: 10,000 idle ones cost 80 MB.
RECEIVE_BUFFER_BYTES = 8 * 1024
# A receive buffer larger than this is given back once the request that needed it is done.
RECEIVE_BUFFER_KEPT_BYTES = 4 * 1024 * 1024
# Responses a connection may owe before we stop reading from it: pipelining clients use far fewer.
RESPONSES_OWED_MAX = 4096
# A request without records larger than this is refused: taken apart it would cost a hundred times its size in memory,
# and hold up everybody for seconds. Metadata of 50,000 topics by name, or of a fetch from 100,000 partitions, fit.
PLAIN_REQUEST_BYTES_MAX = 4 * 1024 * 1024
# Bytes of requests that wait for data on one connection before we stop reading from it: each is kept, taken apart.
REQUESTS_HELD_BYTES_MAX = 256 * 1024
# Partitions that all fetch sessions together may remember: some 100 MB of memory.
FETCH_SESSION_PARTITIONS_MAX = 200_000
# Answers that are gathered for one write at most, and the size from which one is not held back for others: together
# they bound what the answers to one buffer full of requests may take.
ANSWERS_GATHERED_MAX = 512
ANSWER_GATHERED_BYTES_MAX = 16 * 1024
# Requests and answers of no more than this are a conversation, not bulk: worth staying awake for.
SMALL_TALK_BYTES_MAX = 16 * 1024
# Unsent response bytes a connection may hold before we stop reading its requests.
SEND_BUFFER_BYTES = 1024 * 1024
# A connection whose reads fill its buffer gets a larger one, up to this: fewer system calls for pipelining clients.
RECEIVE_BUFFER_GROWN_BYTES = 64 * 1024
# A response larger than this is a broken peer to our own client: brokers answer with far less than 100 MB.
RESPONSE_BYTES_MAX = 100 * 1024 * 1024
# Bytes a client may send in a row before the other clients, timers and finished syncs get their turn: about 1 ms.
TURN_BYTES_MAX = 1024 * 1024
# Large buffers of answers that our own client uses again: one with the caller, one being read, one in between.
RESPONSE_BUFFERS_KEPT = 3
# Smaller ones are cheap to make, larger ones too much to hold on to.
RESPONSE_BUFFER_KEPT_BYTES_MIN = 256 * 1024
RESPONSE_BUFFER_KEPT_BYTES_MAX = 16 * 1024 * 1024
# Records one relay may ever move: what 15 bits of an epoch and 31 of a sequence can count, two years at a million a
# second.
RELAYED_DISTANCE_MAX = (1 << 46) - 1
