"""Loads every handler, so that the registry is complete before the first connection."""

from importlib import import_module
from pkgutil import iter_modules

from penstock.frontends.kafka import handlers
from penstock.frontends.kafka.registry import REGISTRY, Api
from penstock.wire.kafka import fetch, produce
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.messages import request_module


def load_handlers() -> None:
    for module in iter_modules(handlers.__path__, handlers.__name__ + "."):
        import_module(module.name)
    for key, codec in ((ApiKey.PRODUCE, produce), (ApiKey.FETCH, fetch)):
        REGISTRY[key] = Api(key, codec.MIN_VERSION, codec.MAX_VERSION, request_module(key), None)
