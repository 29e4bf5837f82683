"""Topics the brokers themselves write to: clients see them marked, and produce to them is refused."""

OFFSETS_TOPIC = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})
