"""The Kafka conversation over one connection: frames to the dispatcher, responses out in request order.

No task per request. Produce and Fetch are answered from inside `buffer_updated`; one that has to wait leaves a
`Reply` in the queue of owed responses, and later ones line up behind it. Everything else may be a coroutine: then
reading stops until it is done, so that such requests of one client take effect in the order they were sent.

What it owes is bounded: a client that waits for too many responses, or for requests that are kept while they wait, or
for answers that are there and wait for those before them, is not read from meanwhile. The bytes themselves are
`stream`'s.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from struct import Struct

from penstock.core.clock import stopwatch
from penstock.core.errors import ApiError, ClientGoneError, ProtocolError, StorageError
from penstock.core.limits import (
    ANSWER_ASSUMED_BYTES,
    ANSWER_GATHERED_BYTES_MAX,
    ANSWERS_GATHERED_MAX,
    FETCH_SLICES_MAX,
    REQUEST_AT_ONCE_BYTES_MAX,
    REQUEST_OF_BROKERS_BYTES_MAX,
    REQUESTS_HELD_BYTES_ALL_MAX,
    REQUESTS_HELD_BYTES_CROWDED_MAX,
    REQUESTS_HELD_BYTES_MAX,
    RESPONSES_OWED_MAX,
    SEND_BUFFER_BYTES,
    SMALL_TALK_BYTES_MAX,
    TURN_HELD_BYTES,
    TURN_SECONDS_MAX,
)
from penstock.server.owing import Dispatcher, Host, Listening, Outcome, Reply
from penstock.server.stream import Stream
from penstock.server.writer import Part, size_of, slices_in, small_slices_read
from penstock.storage.segment import Slice
from penstock.wire.kafka.api_keys import ApiKey

_SIZE = Struct(">i")
_PRODUCE = int(ApiKey.PRODUCE)
_FRAME_BYTES_MIN = 8  # api key, version, correlation id
# Their answers say little more than their requests do, or are made only as large as may be.
_ANSWERED_SHORTLY = frozenset(map(int, (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT)))

logger = logging.getLogger(__name__)


class KafkaConnection(Stream):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, host: Host, dispatcher: Dispatcher, listener: Listening
    ) -> None:
        super().__init__(loop, host, listener)
        self._dispatcher = dispatcher
        self._owed: deque[Reply] = deque()
        # Of the requests behind `_owed` that are kept while they wait, and of answers there.
        self._held_bytes = 0
        self._held_slices = self._held_answers_bytes = 0  # of files in those answers, and what is in memory
        self._leaving_bytes = 0  # of the latter, no longer owed: they are in `_ready`, with others
        self._admitted: Reply | None = None  # a large answer, from when it is there until the writer has it
        self._ready: list[Part] = []
        self._flush_soon = False
        self._has_turn = False  # others had theirs: it may ask for much
        self._api_key = 0  # of the request being dispatched, and since when
        self._began = 0.0

    # -- requests -------------------------------------------------------------------------------------------

    def _process(self) -> None:
        """Dispatch every whole frame that has arrived."""
        view, start, end = self._view, self._start, self._end
        first = start
        dispatch = self._dispatcher.dispatch
        observe = self._host.requests.observe
        self._began = stopwatch()
        wanted, held_max = 4, self._held_bytes + TURN_HELD_BYTES
        stopped = waits = False  # although more has arrived; and that for its turn
        try:
            while end - start >= 4:
                (size,) = _SIZE.unpack_from(view, start)
                if not _FRAME_BYTES_MIN <= size <= self._host.request_bytes_max and not self._is_of_a_broker(
                    size
                ):
                    raise ProtocolError(f"a frame of {size} bytes")
                begin = start + 4
                behind = begin + size
                if behind > end:
                    wanted = size + 4
                    break
                if size > REQUEST_AT_ONCE_BYTES_MAX and not self._may_ask_for_much(begin):
                    waits = True
                    break
                frame = view[begin:behind]
                self._start = start = behind
                self._api_key = frame[0] << 8 | frame[1]
                parts = dispatch(self, frame)
                if parts:
                    if self._owed:
                        self._answer_behind(parts)
                    else:
                        self._ready += parts
                    now = stopwatch()
                    observe(self._api_key, now - self._began)
                    self._began = now
                if start == end:  # nearly always: nothing of the rest is asked
                    break
                if (
                    (parts and not self._may_gather(parts))
                    or self._busy
                    or self._transport is None
                    or self.session.muted_until
                    or len(self._owed) >= RESPONSES_OWED_MAX
                    or self._held_bytes > held_max
                    or self._lent >= FETCH_SLICES_MAX
                    # Few bytes may ask for much work: an incremental fetch of a large session, say.
                    or self.loop.time() - self.last_active >= TURN_SECONDS_MAX
                ):
                    stopped = True
                    break
            if not self._keeps_frame:
                self._make_room(wanted)
        except ProtocolError as error:
            logger.info("closing the connection of %s: %s", self.peer, error)
            self._flush()
            self.close()
            return
        except Exception:  # a bug of ours; nobody else's connection shall suffer from it
            logger.exception("a request of %s failed unexpectedly", self.peer)
            self.close()
            return
        # By whole requests: the last read of a large one may be small.
        self._in_conversation = start - first <= SMALL_TALK_BYTES_MAX
        self._flush()
        # Sending may have ended what it was stopped for, and then nobody else would call for the rest.
        may_go_on = stopped and self._transport is not None and self._may_read()
        if may_go_on or waits or (start != end and self._held_bytes > held_max):  # not for an answer alone
            self._queue_up()
        self._regulate_reading()

    def take_turn(self) -> None:
        self._has_turn = True
        super().take_turn()
        self._has_turn = False

    def _may_ask_for_much(self, at: int) -> bool:
        """Whether a request that may take long is carried out now: one in a turn of the loop, of all clients."""
        is_free = self.session.broker >= 0 or self._view[at] << 8 | self._view[at + 1] == _PRODUCE
        has_turn, self._has_turn = self._has_turn, False
        return is_free or has_turn

    def _is_of_a_broker(self, size: int) -> bool:
        """What is acknowledged elsewhere must get here, whatever clients may send at most."""
        return self.session.broker >= 0 and _FRAME_BYTES_MIN <= size <= REQUEST_OF_BROKERS_BYTES_MAX

    def _may_take_more(self) -> bool:
        return (
            len(self._owed) < RESPONSES_OWED_MAX
            and self._held_bytes <= REQUESTS_HELD_BYTES_MAX
            and (not self._held_bytes or self._host.held_bytes <= REQUESTS_HELD_BYTES_ALL_MAX)
            and self._lent < FETCH_SLICES_MAX
        )

    def owes_too_much(self) -> bool:
        if len(self._owed) >= RESPONSES_OWED_MAX:
            return True
        if self._host.held_bytes > REQUESTS_HELD_BYTES_ALL_MAX:
            return len(self._owed) > 1 and self._held_bytes > REQUESTS_HELD_BYTES_CROWDED_MAX
        if len(self._owed) <= 1 or self._held_bytes <= REQUESTS_HELD_BYTES_MAX:
            return False
        # Not with what is answered: one answer of some size behind a long poll is nothing unusual.
        waiting = (reply.held_bytes for reply in self._owed if reply.parts is None)
        return sum(waiting) > REQUESTS_HELD_BYTES_MAX

    def _admit(self, wanted: int) -> None:
        at = self._start + _SIZE.size
        self._dispatcher.admit(self._view[at] << 8 | self._view[at + 1], wanted - _SIZE.size)

    def run(self, work: Coroutine[object, object, Outcome], held_bytes: int = 0) -> None:
        """Answer the current request with what a coroutine returns (or who answers later); no other one meanwhile.

        `held_bytes` of the request are kept for who answers later.
        """
        self._busy = True
        # Batches stay where they are. All other requests are copied when they are taken.
        self._keeps_frame = self._api_key == _PRODUCE
        reply = self.defer(None, held_bytes)
        self._host.run(self._run(work, reply))

    def room_for(self, size_bytes: int) -> asyncio.Future[None] | None:
        """For a large answer to the current request, to be awaited where there is none yet."""
        if self._transport is None:
            raise ClientGoneError("the client has left")
        if self.session.broker >= 0:  # they must not wait for clients
            return None
        return self._host.send_budget.admit(self, size_bytes)

    async def _run(self, work: Coroutine[object, object, Outcome], reply: Reply) -> None:
        parts: Outcome = None
        try:
            parts = await work or []  # no answer (acks=0) leaves no gap in the row
        except ClientGoneError as error:
            logger.info("a request of %s is not worked on: %s", self.peer, error)
            parts = []  # nobody reads an answer; what it sent behind the request is taken, as with acks=0
        except ProtocolError as error:
            logger.info("closing the connection of %s: %s", self.peer, error)
            self.close()
        except Exception:
            logger.exception("a request of %s failed unexpectedly", self.peer)
            self.close()
        self._busy = self._keeps_frame = False
        if self.promised_bytes:
            self._end_promise(reply, parts)
        if self._transport is None:
            self._budget.release(self)  # nobody did when the connection was lost
        if callable(parts):
            parts(reply)
            if self._transport is None:
                reply.abandon()  # nobody did when the connection was lost
        elif parts is not None:
            reply.send(parts)
        if self._transport is not None:
            self._flush()
        if self._writer is None or self.session.muted_until:
            return
        if self._may_take_more() and self._writer.unsent_bytes <= SEND_BUFFER_BYTES:
            self._process()
        else:
            # Refused room meanwhile, it asks again when it goes on; nobody else would make it go on.
            self._starved = False
            self._regulate_reading()

    def _end_promise(self, reply: Reply, answer: Outcome) -> None:
        """From now on the answer counts as what it is, also before it is sent."""
        self.promised_bytes = 0
        if not answer or callable(answer) or self._transport is None:
            self._count_unsent()
            self._host.send_budget.answered(self)
            return
        self._admitted = reply
        if self._owed[0] is reply:  # else it is held as all that wait for others are
            self._hold(reply, answer)

    # -- responses ------------------------------------------------------------------------------------------

    def defer(self, abandoned: Callable[[], None] | None = None, held_bytes: int = 0) -> Reply:
        """A place in the row of responses for the current request, to be filled later."""
        reply = Reply(self, self._api_key, self._began)
        if not held_bytes and self._api_key not in _ANSWERED_SHORTLY:
            held_bytes = ANSWER_ASSUMED_BYTES
        if held_bytes:
            reply.abandoned, reply.held_bytes = abandoned, held_bytes
            self._add_held(held_bytes)
        self._owed.append(reply)
        return reply

    def _add_held(self, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        self._host.held_bytes += size_bytes

    def _answer_behind(self, parts: list[Part]) -> None:
        """Those that are owed go first."""
        reply = Reply(self, self._api_key, self._began)
        reply.parts = parts
        self._owed.append(reply)
        self._hold(reply, parts)

    def _hold(self, reply: Reply, parts: list[Part]) -> None:
        """It is there, and waits for others: from now on its own size counts, not that of its request."""
        try:
            reply.parts = parts = small_slices_read(parts)
        except StorageError as error:
            logger.info("closing the connection of %s: an answer cannot be kept: %s", self.peer, error)
            self.abort()
        size = size_of([part for part in parts if not isinstance(part, Slice)])
        # As much as stops this connection, no more: one large answer would crowd all others (`owes_too_much`).
        held = min(size, REQUESTS_HELD_BYTES_MAX + 1)
        self._add_held(held - reply.held_bytes)
        reply.held_bytes, reply.kept_bytes = held, size
        reply.slices = slices_in(parts)
        self._held_answers_bytes += size
        self._held_slices += reply.slices
        self._count_unsent()

    def _owed_slices(self) -> int:
        return self._held_slices

    def _owed_bytes(self) -> int:
        return self._held_answers_bytes

    def _may_gather(self, parts: list[Part]) -> bool:
        """Whether further requests may be answered before this answer has gone."""
        few = len(parts) == 1 and len(self._ready) < ANSWERS_GATHERED_MAX
        if few and len(parts[0]) <= ANSWER_GATHERED_BYTES_MAX:
            return True
        self._flush()
        return self._writer is not None and self._writer.unsent_bytes <= SEND_BUFFER_BYTES

    def reply_ready(self, reply: Reply, api_key: int, began: float) -> None:
        """Some owed response is there: send those at the front, at the end of this turn of the loop."""
        self._host.requests.observe(api_key, stopwatch() - began)
        owed = self._owed
        if owed and owed[0] is not reply and reply.parts is not None:
            self._hold(reply, reply.parts)
            return
        while owed and (parts := owed[0].parts) is not None:
            front = owed.popleft()
            self._add_held(-front.held_bytes)
            self._leaving_bytes += front.kept_bytes
            self._held_slices -= front.slices
            self._ready += parts
        if self._ready and not self._flush_soon:
            self._flush_soon = True
            self.loop.call_soon(self._flush_and_go_on)

    def _flush_and_go_on(self) -> None:
        self._flush_soon = False
        if self._transport is None:
            return
        self._flush()
        if not self._reading:
            self._drained()

    def _flush(self) -> None:
        try:
            self._dispatcher.write_held()
        except ApiError as error:
            # Some of what was to be acknowledged is not stored. Which answers say so is not known any more.
            logger.warning("closing the connection of %s without an answer: %s", self.peer, error)
            self._ready.clear()
            self.abort()
            return
        if self._ready:
            ready, self._ready = self._ready, []
            if self._leaving_bytes:
                self._send_held(ready)
            else:
                self._send(ready)

    def _send_held(self, ready: list[Part]) -> None:
        """With some that were counted while they waited: the writer counts them now."""
        self._held_answers_bytes -= self._leaving_bytes
        self._leaving_bytes = 0
        self._send(ready)
        if self._admitted is not None and self._admitted not in self._owed:
            self._admitted = None
            self._host.send_budget.answered(self)

    def close(self) -> None:
        if self._transport is not None and self._ready:
            self._flush()
        super().close()

    def _gone(self) -> None:
        for reply in self._owed:
            reply.abandon()
        self._owed.clear()
        self._add_held(-self._held_bytes)
        self._held_slices = self._held_answers_bytes = self._leaving_bytes = 0
        self._admitted = None
        self._ready.clear()
