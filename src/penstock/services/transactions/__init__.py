"""The transaction coordinator in service: decisions of `groups.transactions` on the runtime of `services.coordinator`.

Served where `penstock.transactions.enable` is set.

    kind           what tells it from other coordinators: `__transaction_state`, its settings
    service        what producers, partition leaders and administrators ask of it
    filled_ids     producer ids at hand, so that nothing that is decided has to wait for one
    id_pattern     regular expressions that ids are listed by
    room           how many transactional ids a broker takes
    markers        the marker of one partition, and who writes it where the partition is led
    marker_sender  every partition of a transaction that ends gets its marker, wherever it is led
    hanging        what no coordinator will end, ended by a client: how far that may go
    marker_request the same in the words of WriteTxnMarkers, for other brokers
"""
