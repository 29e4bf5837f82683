"""Penstock: one replicated log, served to Kafka clients, RabbitMQ clients and Spark."""

__version__ = "0.1.0"
