"""Whether the other end of a connection is gone, also while nothing is read from it and its end is not seen so."""

import asyncio
import select

# Linux tells of a peer that closed however much it sent before; others only of one that is gone altogether.
_CLOSED = getattr(select, "POLLRDHUP", 0)


def hung_up(transport: asyncio.Transport) -> bool:
    if transport.is_closing():
        return True
    socket = transport.get_extra_info("socket")
    if socket is None:  # in the simulation
        return False
    poll = select.poll()
    poll.register(socket.fileno(), _CLOSED)
    return bool(poll.poll(0))
