"""What brokers say to each other and to nobody else: messages of our own, under API keys far from Kafka's (ADR 17)."""
