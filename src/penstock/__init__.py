"""Penstock: one replicated log, served to Kafka clients and Spark.

    from penstock import Producer, Consumer

The names of the SDK are loaded when they are first used: a broker, which imports this package too, never
pays for a client library it does not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin, Shift
    from penstock.client.aio import AsyncConsumer, AsyncProducer
    from penstock.client.consuming.consumer import Consumer
    from penstock.client.delivery import Sent
    from penstock.client.encryption import Encryption, StaticKeys
    from penstock.client.errors import ClientError
    from penstock.client.message import Message
    from penstock.client.producer import Producer
    from penstock.client.retry.policy import Retry

__version__ = "0.1.0"

_HOMES = {
    "Admin": "penstock.client.admin.admin",
    "AsyncConsumer": "penstock.client.aio",
    "AsyncProducer": "penstock.client.aio",
    "ClientError": "penstock.client.errors",
    "Consumer": "penstock.client.consuming.consumer",
    "Encryption": "penstock.client.encryption",
    "Message": "penstock.client.message",
    "Producer": "penstock.client.producer",
    "Retry": "penstock.client.retry.policy",
    "Sent": "penstock.client.delivery",
    "Shift": "penstock.client.admin.admin",
    "StaticKeys": "penstock.client.encryption",
}

__all__ = [
    "Admin",
    "AsyncConsumer",
    "AsyncProducer",
    "ClientError",
    "Consumer",
    "Encryption",
    "Message",
    "Producer",
    "Retry",
    "Sent",
    "Shift",
    "StaticKeys",
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found
