"""The listeners of a broker, from the settings that name them, by Kafka's rules.

    listeners                        NAME://HOST:PORT, ...       where it listens; an empty host is every address
    advertised.listeners             NAME://HOST:PORT, ...       where clients of a listener are told to connect
    listener.security.protocol.map   NAME:PROTOCOL, ...          what is spoken there
    inter.broker.listener.name       NAME                        by which brokers reach each other

Names have no case. Each name is listened on once, each port too (an IPv4 and an IPv6 address may share one); what is
advertised must be listened on. A listener that is left out of `advertised.listeners` serves those who know it, and is
told to nobody. Brokers use what `inter.broker.listener.name` names, which must be advertised; unset, the listener with
the name of `security.inter.broker.protocol`.

Only PLAINTEXT is spoken yet. What is not honoured is not accepted: SASL_SSL served in plaintext is worse than an error.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address

from penstock.config.settings import ConfigError, Value
from penstock.core.endpoints import WILDCARDS, Address

PLAINTEXT = "PLAINTEXT"
_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# A name may be left out, as on the command line.
_LISTENER = re.compile(r"(?:([^:/]+)://)?(\[[^\]]*\]|[^\[\]/]*):([0-9]{1,5})")
_PORT_MAX = 65535


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    name: str
    protocol: str
    # Where it listens; port 0 stands for any that is free.
    address: Address
    # Where its clients are told to connect; port 0 stands for the one it listens on. None: they are told nothing.
    advertised: Address | None

    @property
    def text(self) -> str:
        """As `listeners` has it."""
        return f"{self.name}://{self.address}"


def resolve_listeners(
    values: Mapping[str, Value], given: Mapping[str, str]
) -> tuple[tuple[ListenerConfig, ...], str]:
    """The listeners, and the name of the one between brokers. ConfigError says which setting is wrong, and how.

    `given`: what was set, as opposed to what is so by default.
    """
    protocols = _protocol_map(str(values["listener.security.protocol.map"]))
    addresses = _named("listeners", values["listeners"])
    _check_distinct_ports(addresses)
    told = values["advertised.listeners"]
    advertised = _named("advertised.listeners", told) if told else addresses
    if told:
        _check_advertised(advertised, addresses)
    listeners = []
    for name, address in addresses.items():
        if name not in protocols:
            raise ConfigError(
                f"listeners has {name}, and listener.security.protocol.map does not say what it speaks: "
                f"add {name}:{PLAINTEXT} there"
            )
        _check_served(name, protocols[name])
        listeners.append(ListenerConfig(name, protocols[name], address, advertised.get(name)))
    return tuple(listeners), _inter_broker(values, given, protocols, [*advertised])


def _protocol_map(text: str) -> dict[str, str]:
    setting = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for pair in text.split(","):
        name, colon, protocol = (part.strip().upper() for part in pair.partition(":"))
        if not (name and colon):
            raise ConfigError(
                f"Invalid value {text} for configuration {setting}: {pair.strip()!r} is no NAME:PROTOCOL"
            )
        if protocol not in _PROTOCOLS:
            raise ConfigError(
                f"Invalid value {text} for configuration {setting}: there is no security protocol {protocol}, only "
                + ", ".join(_PROTOCOLS)
            )
        if name in protocols:
            raise ConfigError(f"Invalid value {text} for configuration {setting}: {name} is there twice")
        protocols[name] = protocol
    return protocols


def _named(setting: str, value: Value) -> dict[str, Address]:
    assert isinstance(value, tuple)
    found: dict[str, Address] = {}
    for text in value:
        name, address = parse_listener(setting, text)
        if name in found:
            raise ConfigError(f"{setting} has {name} twice: each listener must have a different name")
        found[name] = address
    return found


def parse_listener(setting: str, text: str) -> tuple[str, Address]:
    matched = _LISTENER.fullmatch(text.strip())
    if matched is None or int(matched[3]) > _PORT_MAX or not _is_host(matched[2]):
        raise ConfigError(
            f"Invalid value {text} for configuration {setting}: Not an address: write {PLAINTEXT}://HOST:PORT"
        )
    return (matched[1] or PLAINTEXT).strip().upper(), Address(
        matched[2].strip("[]") or "0.0.0.0", int(matched[3])
    )


def _is_host(text: str) -> bool:
    """What cannot be one would be told to all others, which try it for ever."""
    try:
        if text.startswith("["):
            IPv6Address(text.strip("[]"))
        else:
            text.encode("idna")
    except ValueError:  # of which encoding errors are some
        return False
    return True


def _check_distinct_ports(addresses: Mapping[str, Address]) -> None:
    taken: dict[tuple[int, bool], str] = {}
    for name, (host, port) in addresses.items():
        key = (port, ":" in host)
        if port and key in taken:
            raise ConfigError(
                f"listeners has port {port} for {taken[key]} and {name}: each listener must have a different port"
            )
        taken[key] = name


def _check_advertised(advertised: Mapping[str, Address], listened: Mapping[str, Address]) -> None:
    for name, address in advertised.items():
        if name not in listened:
            raise ConfigError(
                f"advertised.listeners has {name}, which listeners has not: it has {', '.join(listened)}"
            )
        if address.host in WILDCARDS:
            raise ConfigError(
                f"advertised.listeners cannot use {address.host} for {name}, which nobody can connect to: "
                "write a name or an address that its clients can reach"
            )


def _check_served(name: str, protocol: str) -> None:
    if protocol != PLAINTEXT:
        raise ConfigError(
            f"listeners has {name}, which speaks {protocol} by listener.security.protocol.map: "
            f"only {PLAINTEXT} is served yet"
        )


def _inter_broker(
    values: Mapping[str, Value],
    given: Mapping[str, str],
    protocols: Mapping[str, str],
    advertised: Sequence[str],
) -> str:
    named = values["inter.broker.listener.name"]
    if not named:
        name = str(values["security.inter.broker.protocol"])
        if name not in advertised:
            raise ConfigError(
                f"no listener has the name {name}, which brokers would use: say with inter.broker.listener.name which "
                f"they use of {', '.join(advertised)}"
            )
        return name
    if "security.inter.broker.protocol" in given:
        raise ConfigError(
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
        )
    name = str(named).strip().upper()
    if name not in protocols:
        raise ConfigError(
            f"inter.broker.listener.name is {name}, which listener.security.protocol.map does not have"
        )
    if name not in advertised:
        raise ConfigError(
            f"inter.broker.listener.name is {name}, which is not advertised: it must be one of {', '.join(advertised)}"
        )
    return name
