"""Topics into a Parquet lake, exactly once.

    <lake>/topic=orders/date=2025-01-31/hour=07/0000000012-4f1c…-0000.parquet  what is archived
    <lake>/_penstock/manifest/0000000012.json                                  what that is: the only truth
    <lake>/_penstock/staging/0000000013-4f1c…/topic=orders/…                   a round that is not committed yet
    <lake>/_penstock/lake.json                                                 its id
    <lake>/_penstock/lock                                                      whoever archives just now

A round reads a fixed range of every partition, writes it to staging, and commits it with one manifest entry that is
written whole or not at all; then the files move to their places. Killed before the entry, a round has left nothing
but staging, which the next run removes. Killed after it, the next run finishes the moves. Numbers of entries are
taken one after another, and each only once: of two archivers that think they own a lake, one fails to commit. A round
has a random id, which is in the names of its files, so no move ever finds a file of another round in its place.
"""
