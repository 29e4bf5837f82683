"""Penstock beside Apache Kafka: `make bench`."""
