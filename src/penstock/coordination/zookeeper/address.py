"""`zookeeper.connect` taken apart: HOST:PORT[,HOST:PORT]...[/path]."""

from dataclasses import dataclass

from penstock.coordination.tree import BadRequestError, CoordinationError, check_path
from penstock.coordination.zookeeper.layout import CHROOT_CHARS_MAX

DEFAULT_PORT = 2181


class AddressError(CoordinationError):
    """Not an address of ZooKeeper; the message says what one looks like."""


@dataclass(frozen=True, slots=True)
class Address:
    # As kazoo takes them: `host:port`, separated by commas.
    hosts: str
    # Below which everything is kept: empty for ZooKeeper's own root.
    chroot: str = ""

    def __str__(self) -> str:
        return self.hosts + self.chroot

    @classmethod
    def parse(cls, text: str) -> "Address":
        hosts, slash, path = text.strip().partition("/")
        chroot = f"/{path}".rstrip("/") if slash else ""
        if len(chroot) > CHROOT_CHARS_MAX:
            raise AddressError(
                f"{chroot} is longer than {CHROOT_CHARS_MAX} characters: choose a shorter path"
            )
        try:
            check_path(chroot or "/")
        except BadRequestError as error:
            raise AddressError(f"{text!r}: {error}") from error
        return cls(",".join(_host_and_port(text, part.strip()) for part in hosts.split(",")), chroot)


def _host_and_port(whole: str, text: str) -> str:
    host, colon, port = text.rpartition(":")
    if text.endswith("]") or not colon:
        host, port = text, str(DEFAULT_PORT)
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or (":" in bare) != host.startswith("[") or not port.isdecimal() or int(port) > 65535:
        raise AddressError(
            f"{whole!r} is not an address of ZooKeeper: write HOST:PORT, several with commas, then a path: "
            "zk1:2181,zk2:2181/penstock"
        )
    return f"{host}:{port}"
