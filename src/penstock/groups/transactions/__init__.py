"""What a transaction coordinator decides about each transactional id, as Apache Kafka 4.3 does; nothing is done here.

A transactional id is one producer at a time. Its transaction opens when the first partition is added, and ends in two
steps: a Prepare record says what is decided, then every partition gets a marker, then a Complete record says that all
have it. Behind the committed Prepare record there is no way back, whoever dies.

What is decided counts in memory at once, as `services.coordinator.shard` has it: the next decision builds on it, and
every answer waits until all it may rest on is committed. Kafka applies a transition only when its record is committed,
and turns everybody away until then. Both hold the same promise: nobody learns what a crash could take back. A failed
append needs no undoing here: the shard drops its memory and reads the log again, where a fence that was not stored has
raised no epoch, and an end that was prepared is found and completed.

So CONCURRENT_TRANSACTIONS never means "my record is on its way to the disk": that waits. It means that an end was
prepared and its markers are under way (`TransactionalId.pending`), or that the caller has just caused an open
transaction to be aborted. Markers leave as replies do, once their Prepare record is committed and not before.

    states            the states and the moves between them, as a table
    layouts           keys and values of `__transaction_state`
    subject           one transactional id, and how it moves
    requests          what is asked and told; `error_names` has what older versions are told instead
    init_producer_id  a producer begins, or begins anew
    add_partitions    partitions and groups' offsets join the transaction; leaders ask whether they are in it
    end               EndTxn, with the rules of both kinds of client apart
    ending            the two steps of every end
    timeouts          transactions that take too long, ids that nobody uses
    machine           all ids of one partition of `__transaction_state`
"""
