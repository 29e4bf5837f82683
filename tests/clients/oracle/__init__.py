"""A differential oracle: the same generated requests to two brokers, their answers compared field by field.

One side is Apache Kafka, the other Penstock (or Kafka again, which proves that the comparison itself is
stable). `variants` says which requests there are, `world` what both brokers hold before the first of them,
`normal` which parts of an answer may differ by nature (ids, ports, clocks), `compare` finds the rest, and
`accepted.toml` names, with the reason, each difference that is meant to be.

    python -m tests.clients.oracle --api Metadata --limit 20
"""
