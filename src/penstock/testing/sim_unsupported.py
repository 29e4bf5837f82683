"""The calls of an event loop that have no simulated counterpart, each refused by name.

Production code that needs one of these has left the seams: it would run on real sockets, processes or
signals, and nothing about it could be replayed from a seed.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"loop.{name} is not simulated: keep it out of code that runs on SimLoop")

    return refuse


class UnsupportedCalls(asyncio.AbstractEventLoop):
    add_reader: Any = _refused("add_reader")
    remove_reader: Any = _refused("remove_reader")
    add_writer: Any = _refused("add_writer")
    remove_writer: Any = _refused("remove_writer")
    add_signal_handler: Any = _refused("add_signal_handler")
    remove_signal_handler: Any = _refused("remove_signal_handler")
    getaddrinfo: Any = _refused("getaddrinfo")
    getnameinfo: Any = _refused("getnameinfo")
    sock_recv: Any = _refused("sock_recv")
    sock_recv_into: Any = _refused("sock_recv_into")
    sock_recvfrom: Any = _refused("sock_recvfrom")
    sock_recvfrom_into: Any = _refused("sock_recvfrom_into")
    sock_sendall: Any = _refused("sock_sendall")
    sock_sendto: Any = _refused("sock_sendto")
    sock_connect: Any = _refused("sock_connect")
    sock_accept: Any = _refused("sock_accept")
    sock_sendfile: Any = _refused("sock_sendfile")
    sendfile: Any = _refused("sendfile")
    start_tls: Any = _refused("start_tls")
    create_unix_connection: Any = _refused("create_unix_connection")
    create_unix_server: Any = _refused("create_unix_server")
    create_datagram_endpoint: Any = _refused("create_datagram_endpoint")
    connect_accepted_socket: Any = _refused("connect_accepted_socket")
    connect_read_pipe: Any = _refused("connect_read_pipe")
    connect_write_pipe: Any = _refused("connect_write_pipe")
    subprocess_shell: Any = _refused("subprocess_shell")
    subprocess_exec: Any = _refused("subprocess_exec")
    set_task_factory: Any = _refused("set_task_factory")

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """There is no debug mode: what it would find is checked always."""
