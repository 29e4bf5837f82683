"""Named bounds that are not settings: one place for every queue, buffer and loop, with its reason."""

# A connection starts with this and grows to what its requests need: 10,000 idle ones cost 80 MB.
RECEIVE_BUFFER_BYTES = 8 * 1024
# A receive buffer larger than this is given back once the request that needed it is done.
RECEIVE_BUFFER_KEPT_BYTES = 4 * 1024 * 1024
# Requests larger than a kept buffer may take this share of `queued.max.request.bytes`: the rest is for ordinary ones.
RECEIVE_LARGE_SHARE = 0.75
# While clients wait for memory, one that holds some of it must send so many bytes (64 KB/s) from one check to the next,
# or its connection is closed. One that may go past the budget, and that others wait for, must send so many from second
# to second: the largest ordinary request (4 MB) takes 8 seconds then.
RECEIVE_CHECK_SECONDS = 5.0
RECEIVE_BYTES_PER_CHECK_MIN = 320 * 1024
RECEIVE_FAVOURED_SECONDS = 1.0
RECEIVE_FAVOURED_BYTES_MIN = 512 * 1024
# Records a compressed batch may say it has per byte of its size, and in all (100 MB of the smallest there are). Offsets
# count up from record to record, so the densest batch of empty records that zstd makes has 1.3 of them in a byte, and
# none can have much more than 12.
COMPRESSED_RECORDS_PER_BYTE_MAX = 64
COMPRESSED_RECORDS_MAX = 15_000_000
# Batches that are opened at once in threads (`compression.type`, compacted topics, offsets by time), and what each of
# them may unpack to and hold; a larger one waits for the single place for large ones (`DECOMPRESSED_BYTES_MAX`).
BATCHES_OPENED_MAX = 4
LOOKUPS_OPENED_MAX = 2  # of them, for offsets by time: the others are for who produces
OPENED_BYTES_MAX = 8 * 1024 * 1024
OPENED_RECORDS_MAX = 10_000  # some 20 ms of work
# Responses a connection may owe before we stop reading from it: pipelining clients use far fewer.
RESPONSES_OWED_MAX = 4096
# Clients' requests that wait for the controller on another broker: they go over one connection, one at a time, and each
# is kept, taken apart. Who comes then is turned away by closing its connection.
FORWARDED_REQUESTS_MAX = 100
# A request without records larger than this is refused: taken apart it would cost a hundred times its size in memory,
# and hold up everybody for seconds. Metadata of 50,000 topics by name, or of a fetch from 100,000 partitions, fit.
PLAIN_REQUEST_BYTES_MAX = 4 * 1024 * 1024
# Bytes of requests without records, over 64 KB each, that are whole and not done. Who has most of them is turned away
# then, and at twice as much everybody.
PLAIN_REQUESTS_BYTES_MAX = 32 * 1024 * 1024
# Bytes of requests that wait for data on one connection, and of answers that wait for those before them, before we stop
# reading from it: each such request is kept, taken apart.
REQUESTS_HELD_BYTES_MAX = 256 * 1024
# The same of all connections together: every record written looks at the fetches that wait for its partition, some
# 20 ms of them then. Past it a client that waits for an answer asks for no more before it has come, as with Kafka.
REQUESTS_HELD_BYTES_ALL_MAX = 16 * 1024 * 1024
# A client that waits for so many requests, and nothing is answered nor read for so long, is closed: whether it is still
# there cannot be seen, for its end stands behind what was not read. Where all connections together wait for too much,
# so few bytes of it are too many for one, with answers that wait for others: Kafka's clients wait for a request or two.
OWED_TOO_MUCH_SECONDS_MAX = 20.0
REQUESTS_HELD_BYTES_CROWDED_MAX = 16 * 1024
# What a fetch that waits counts as, at least: taken apart it takes a kilobyte and more, and every record written to its
# partitions looks at it.
FETCH_HELD_BYTES_MIN = 1024
# And for each partition of its session, which its request need not name.
FETCH_HELD_PARTITION_BYTES = 70
# An answer that is not there yet counts as so much of that: nobody knows what it will be when its request is taken.
ANSWER_ASSUMED_BYTES = 4096
# Smaller slices of files are read when they have to wait; larger ones go from the page cache to the socket.
SLICE_BYTES_MIN = 32 * 1024
# A fetch that would wait for longer is answered then, with what there is.
FETCH_WAIT_SECONDS_MAX = 300.0
# Partitions that all fetch sessions together may remember: some 100 MB of memory.
FETCH_SESSION_PARTITIONS_MAX = 200_000
# Of an existing session that one request may change: in some 20 ms, and as a whole, for the next request builds on it.
FETCH_SESSION_CHANGES_MAX = 20_000
# Partitions that a fetch may ask for and be served in one turn, in some 5 ms; larger ones give way to others.
FETCH_PARTITIONS_AT_ONCE = 1000
# Fetches that one record wakes at once; the others follow in portions, so that whoever waits for something else is
# served in between: about 1 ms.
FETCHES_WOKEN_AT_ONCE = 32
# Answers that are gathered for one write at most, and the size from which one is not held back for others: together
# they bound what the answers to one buffer full of requests may take.
ANSWERS_GATHERED_MAX = 512
ANSWER_GATHERED_BYTES_MAX = 16 * 1024
# Requests and answers of no more than this are a conversation, not bulk: worth staying awake for.
SMALL_TALK_BYTES_MAX = 16 * 1024
# Unsent response bytes a connection may hold before we stop reading its requests.
SEND_BUFFER_BYTES = 1024 * 1024
# Bytes of answers that all connections together hold in memory until they are read; past half of it memory is short.
UNSENT_BYTES_MAX = 128 * 1024 * 1024
# While it is short, a client with unread answers must read so many bytes (64 KB/s) from one check to the next. Its
# connection is closed when it is behind by so many checks. No sooner, for a full socket takes nothing before a third of
# its buffer is free: up to 1.6 MB in a leap, for which a client that reads at this rate takes 26 s.
SEND_CHECK_SECONDS = 5.0
SEND_BYTES_PER_CHECK_MIN = 320 * 1024
SEND_CHECKS_BEHIND_MAX = 8
# A larger answer to a client is encoded when there is room for it in the first half of those bytes. Where there is
# none, one at a time is encoded all the same, and counted apart; while others wait its client must read so many bytes
# (1 MB/s) from one check to the next.
ANSWER_ADMITTED_BYTES_MIN = 1024 * 1024
ANSWER_FAVOURED_SECONDS = 2.0
ANSWER_FAVOURED_BYTES_MIN = 2 * 1024 * 1024
# What an entry of an answer takes besides what it names, as long as it is not encoded; and what an answer counts as, at
# least, that waits for room (`PORTIONED_WAITING_BYTES_MAX`).
ANSWER_ENTRY_BYTES = 200
ANSWER_WAITING_BYTES_MIN = 64 * 1024
# A connection whose reads fill its buffer gets a larger one, up to this: fewer system calls for pipelining clients.
RECEIVE_BUFFER_GROWN_BYTES = 64 * 1024
# A response larger than this is a broken peer to our own client: brokers answer with far less than 100 MB.
RESPONSE_BYTES_MAX = 100 * 1024 * 1024
# Bytes a client may send in a row before the other clients, timers and finished syncs get their turn: about 1 ms.
TURN_BYTES_MAX = 1024 * 1024
# A client's request without records that is larger than this waits for its turn: one is carried out in each turn of the
# loop, however many come at once. One of 64 KB takes up to 25 ms.
REQUEST_AT_ONCE_BYTES_MAX = 8 * 1024
# Items of a long list (partitions, names) that are dealt with before others get their turn: about 1 ms.
TURN_ITEMS_MAX = 100
# The same by the time that was spent: where some of them make files, and between requests that a client sends at once.
TURN_SECONDS_MAX = 0.002
# Entries of all lists in a request that is not small: a full garbage collection walks through them while all others
# wait. Fewer where it is carried out as a whole, in some 100 ms (`frontends.kafka.portions`).
REQUEST_ENTRIES_MAX = 120_000
REQUEST_ENTRIES_WHOLE_MAX = 20_000
# Partitions of one AlterPartition: with 5 replicas each it is no large request (`LARGE_REQUEST_BYTES`) yet, which waits
# for those of clients, and far from the most entries of one that is carried out as a whole.
ISR_PROPOSALS_MAX = 500
# Connections from one broker to another over which relays move records. Those that share one wait for each other.
RELAY_CONNECTIONS_MAX = 32
# Partitions that a broker asks another for at once, of as many as there are.
PEER_ENTRIES_MAX = 10_000
# A request that can be carried out in portions is when it is larger than this, and few of them at the same time: each
# may take some 20 MB of memory. As many large ones (below) beside them.
PORTIONED_REQUEST_BYTES = 8 * 1024
# So is a small one that names more of what is long to tell: settings of a topic, members of a group.
DEAR_ENTRIES_MAX = 10
PORTIONED_REQUESTS_MAX = 4
# As many large ones that are carried out as a whole; one that takes longer than this makes room for the next.
WHOLE_PLACE_SECONDS_MAX = 10.0
# The same of brokers: they must not wait for clients.
PORTIONED_REQUESTS_OF_BROKERS_MAX = 2
# Bytes of such requests that give up their place while they wait for something else. They are kept, taken apart.
PORTIONED_WAITING_BYTES_MAX = 8 * 1024 * 1024
# An answer with more entries in its lists is encoded in a thread.
LARGE_ANSWER_ENTRIES = 1000
# Topics as they stand in answers to Metadata, kept for those who ask next, of one listener: a million partitions.
METADATA_ENCODED_BYTES_MAX = 64 * 1024 * 1024
# A larger answer is not copied to put its header before it.
LARGE_ANSWER_BYTES = 64 * 1024
# A broker may send more than `socket.request.max.bytes`: batches that were taken where that was more, and half a
# megabyte of them at a time.
REQUEST_OF_BROKERS_BYTES_MAX = 256 * 1024 * 1024
# Requests larger than this are taken apart in a thread, one at a time: Metadata of 2,000 topics by name is no more.
LARGE_REQUEST_BYTES = 64 * 1024
# Bytes of requests that have to wait, taken from one client before others get their turn: a fetch.
TURN_HELD_BYTES = 1024
# Large buffers of answers that our own client uses again: one with the caller, one being read, one in between.
RESPONSE_BUFFERS_KEPT = 3
# Smaller ones are cheap to make, larger ones too much to hold on to.
RESPONSE_BUFFER_KEPT_BYTES_MIN = 256 * 1024
RESPONSE_BUFFER_KEPT_BYTES_MAX = 16 * 1024 * 1024
# What the members of one group may tell of themselves (names, and metadata of all protocols they know), in sizes of the
# record that must hold a part of it (`max.message.bytes` of `__consumer_offsets`). Who would exceed it is turned away.
GROUP_MEMBERS_RECORDS_MAX = 4
# About what each takes besides: so there are some 7,000 of them at most, and all are described in some 10 ms.
GROUP_MEMBER_BYTES = 500
# And each protocol that a member names, however short its name: a string, a tuple, a count of its supporters.
GROUP_PROTOCOL_BYTES = 200
# The same of all groups of a broker; past it only members that say little are let in.
GROUPS_MEMBERS_BYTES_MAX = 128 * 1024 * 1024
MEMBER_BYTES_SMALL_MAX = 4 * 1024
# What the groups that a broker coordinates may take of its memory: names, members, offsets with their metadata. Past it
# no group is made. Those that are there may take a quarter more, for partitions and members that come to them; past
# that they commit what they have committed before, and nothing else.
GROUPS_BYTES_MAX = 128 * 1024 * 1024
GROUPS_RESERVE_BYTES = GROUPS_BYTES_MAX // 4
# About what each takes, as measured, without what its client chose.
GROUP_BYTES = 1500
GROUP_OFFSET_BYTES = 200
# The same of a transactional id, and of each partition in its transaction.
TRANSACTIONAL_ID_BYTES = 1000
TRANSACTION_PARTITION_BYTES = 200
# What the transactional ids that a broker coordinates may take of its memory, some 60,000 of them. Past it no new one
# is taken; those that are there may take a quarter more, for partitions that are added to their transactions.
TRANSACTIONS_BYTES_MAX = 64 * 1024 * 1024
TRANSACTIONS_RESERVE_BYTES = TRANSACTIONS_BYTES_MAX // 4
# Producer ids that are at hand for transactional ids, taken once the first producer has come; below the least, more are
# taken. One that waits for the first of them is one of so many at most.
SPARE_IDS_MAX = 20
SPARE_IDS_LEAST = 10
WAITING_FOR_IDS_MAX = 10_000
# Markers of transactions that are written here at once, each by a task; to another broker one request is under way at a
# time, with so many of them at most.
MARKERS_WRITTEN_AT_ONCE_MAX = 200
MARKERS_PER_REQUEST_MAX = 1000
# Of a client's regular expression: its length, how deep its groups may be, and what it may become in memory. Each
# character that it is compared with takes as many steps as there are states, at worst.
PATTERN_CHARS_MAX = 1000
PATTERN_DEPTH_MAX = 20
PATTERN_STATES_MAX = 500
# Topics that a group's members may name before nobody looks which they are: the group counts as reading any.
SUBSCRIBED_TOPICS_MAX = 20_000
# So much of a client's name goes into the member ids that it is given.
MEMBER_ID_NAME_CHARS_MAX = 255
# A longer message is cut before it is logged: it may quote what a client has sent.
LOG_MESSAGE_CHARS_MAX = 2000
# Records one relay may ever move: what 15 bits of an epoch and 31 of a sequence can count, two years at a million a
# second.
RELAYED_DISTANCE_MAX = (1 << 46) - 1
# Idempotent producers that a partition remembers: some 30 MB. Past half of it those that were quiet for so long are
# forgotten before `producer.id.expiration.ms`: twice as long as Kafka's clients try a batch again by default, since a
# repeat of a forgotten producer's batch would be stored twice. At the bound new producers are refused.
PRODUCERS_MAX = 50_000
PRODUCER_QUIET_MS_MIN = 5 * 60 * 1000
# The same of all partitions of a broker together: 550 bytes each with one batch, 1.6 KB with five. Past half of it
# those that are quiet are forgotten early, at the bound new ones are refused. A quarter as many again is shared out
# evenly among the partitions, for those that remember few: 500,000 in all, some 280 MB, and no more than 800 MB.
PRODUCERS_ALL_MAX = 400_000
PRODUCERS_RESERVE = PRODUCERS_ALL_MAX // 4
# Producers that are looked at for it before others get their turn: about 1 ms.
PRODUCERS_AT_ONCE = 1000
# Producers that are described in one answer, of all partitions it names but the first: some 60 MB while it is made.
PRODUCERS_DESCRIBED_MAX = 2 * PRODUCERS_MAX
# Producers that a leader tells a follower of in one answer.
PRODUCERS_TOLD_MAX = 1000
# Logs that are synced at once without anybody waiting for it, of the broker's eight threads: the others are for those
# who do.
SYNCS_UNHURRIED_MAX = 4
# Partitions of one Produce request that wait to be synced; the next batch is appended when the first of them is. A
# request may name thousands, and who comes next would wait for all of them.
SYNCS_OF_REQUEST_MAX = 16
# Operations of one write to the coordination store: planned and taken in on the loop, in some 10 ms.
MULTI_OPERATIONS_MAX = 2500
# Descriptors of the process (RLIMIT_NOFILE) that are for neither segments nor Kafka clients: the console's connections,
# the metadata store, listeners, threads that read and write small files. A quarter where the limit is small.
OTHER_DESCRIPTORS = 160
# What a client may take: its connection, and a second handle while its socket is full.
CONNECTION_DESCRIPTORS = 2
# Partitions for each segment file that may be open: with more, nearly every request would open a file first. Creating
# more is refused.
PARTITIONS_PER_FILE_MAX = 16
# Lines of the log that differ in nothing but what they speak of, in so many seconds: the rest is counted.
LOG_REPEATS_MAX = 20
LOG_REPEATS_SECONDS = 10.0
# What a partition takes of a disk before it has a record: a directory and its first files. Creation is refused where
# that is not to be had.
PARTITION_BYTES_MIN = 4096
PARTITION_INODES = 4
# A disk with less than this is full: a message may be as large. The broker says so, in its log and in /healthz.
DISK_FULL_BYTES = 1024 * 1024
# How often a fetch has something read that is gone from memory before it is sent: then the loop waits for the disk.
FETCH_WARM_ROUNDS_MAX = 3
# Partitions whose files are opened or read at once for one fetch. Those behind it have their turn when the first are
# done, or with the next fetch.
FETCH_COLD_MAX = 64
# How often that is done for a fetch which gets nothing by it, since others take the descriptors away before it can use
# them: then it is answered with KAFKA_STORAGE_ERROR, and fetches again.
FETCH_COLD_ROUNDS_MAX = 16
# Large slices of files in one answer, and in all answers of one connection before we stop reading from it: each holds
# its file open until the client has read it.
FETCH_SLICES_MAX = 64
# Bytes in smaller slices from which on an answer takes no further partition: they are copied where the client is slow
# to read. The rest comes with the next fetch. Where memory for answers is short, 32 KB of them.
FETCH_COPIED_BYTES_MAX = 1024 * 1024
# Refused requests (client id and API) that are remembered, so that each is told once; and what of a client id is told.
REFUSALS_REMEMBERED_MAX = 1000
CLIENT_ID_LOGGED_CHARS_MAX = 100
# What the slices in answers of all connections may have of the files that may be open. Past it a consumer is answered
# with no more than a small slice, or a single batch, which is copied.
LENT_FILES_SHARE = 0.5
# Connections to the console port: scrapers and probes are a handful; each may hold an answer of some megabytes. And how
# long each may take, from its first byte to the last.
HTTP_CONNECTIONS_MAX = 64
HTTP_SECONDS_MAX = 10.0
