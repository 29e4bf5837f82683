"""Generates the Kafka codecs (`src/penstock/wire/kafka/generated`) from kio's schema: `make codegen`."""
