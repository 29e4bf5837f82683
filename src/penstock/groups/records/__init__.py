"""Keys and values of `__consumer_offsets`, byte for byte as Apache Kafka 4.3 writes and reads them."""
