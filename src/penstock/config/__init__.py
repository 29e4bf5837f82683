"""Every setting declared once; the configs made from the declarations are frozen and passed in, never global."""

from penstock.config.broker import BrokerConfig
from penstock.config.settings import ConfigError
from penstock.config.topic import TopicConfig

__all__ = ["BrokerConfig", "ConfigError", "TopicConfig"]
