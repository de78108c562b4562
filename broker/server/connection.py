"""One client connection: bytes in, requests to the handlers, replies out in order.

Rules:

- A read pass takes what the socket has, handles every whole request in it, and writes the
  produced batches of the pass together. They lie in the receive buffer until then, so the buffer
  moves only between passes.
- Nothing blocks. A client that does not read its replies is not read from either.
- MalformedError bytes close this connection with a log line; they never touch another one.
- When the connection goes, everything that waits for it is called off.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from broker.handlers import HANDLERS, Node, Request
from broker.handlers.api_versions import api_versions
from broker.handlers.fetch import Fetch
from broker.handlers.produce import Production, commit
from broker.protocol import APIS, Header, MalformedError, decode, encode, parse_header, seal
from broker.protocol import fetch as fetch_messages
from broker.protocol import produce as produce_messages
from broker.protocol.apis import API_VERSIONS, FETCH, PRODUCE
from broker.protocol.fetch import Piece
from broker.server.counters import Counters
from broker.server.limits import Limits, Memory
from broker.server.outbox import Outbox, Slot

__all__ = ["Connection"]

_log = logging.getLogger(__name__)
_SMALL_BUFFER = 16 << 10
_LARGE_BUFFER = 1 << 20
_FULL_PAUSE = 0.05


class Connection:
    """A connection that was accepted; `closed` is called once, when it is gone."""

    def __init__(
        self,
        node: Node,
        sock: socket.socket,
        peer: str,
        limits: Limits,
        memory: Memory,
        counters: Counters,
        closed: Callable[[Connection], None],
    ) -> None:
        self.peer = peer
        self._node = node
        self._sock = sock
        self._limits = limits
        self._memory = memory
        self._counters = counters
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(sock)
        self._buffer = bytearray(_SMALL_BUFFER)
        self._start = self._end = 0  # the unread bytes in the buffer
        self._productions: list[Production] = []
        self._fetches: set[Fetch] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_pass = self._reading = self._writing = self._paused = False
        self._stopping = self._full = False
        self._taken = 0  # of the shared memory
        self.last_active = self._loop.time()
        self.open = True
        self._resume_reading()

    # -- reading -----------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            with memoryview(self._buffer) as view, view[self._end :] as free:
                count = self._sock.recv_into(free)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(f"receive failed: {error}")
            return
        if not count:
            self.close()
            return
        self._end += count
        self._counters.received_bytes += count
        self.last_active = self._loop.time()
        self._pass()

    def _pass(self) -> None:
        """Handle every whole request in the buffer, then write and send together."""
        failure = ""
        self._in_pass = True
        try:
            self._requests()
        except MalformedError as error:
            failure = f"malformed request: {error}"
        except Exception:
            _log.exception("%s: request failed", self.peer)
            failure = "internal error"
        self._commit()  # what came before the failure in this pass is taken and answered
        self._in_pass = False
        if self.open:
            self._make_room()
            self._send()
        if failure:
            self.close(failure)

    def _requests(self) -> None:
        buffer, waiting, in_flight = self._buffer, self._outbox.slots, self._limits.in_flight
        while self.open and self._end - self._start >= 4:
            if len(waiting) >= in_flight:
                self._paused = True
                return
            size = int.from_bytes(buffer[self._start : self._start + 4], "big", signed=True)
            if not 8 <= size <= self._limits.request_bytes:
                raise MalformedError(
                    f"a request of {size} bytes is not within 8..{self._limits.request_bytes}"
                )
            stop = self._start + 4 + size
            if stop > self._end:
                return
            self._request(self._start + 4, stop)
            self._start = stop

    def _make_room(self) -> None:
        """Between passes: move what is unread to the front, and fit the buffer to what comes."""
        unread = self._end - self._start
        wanted = _SMALL_BUFFER
        if unread >= 4 and not self._paused:
            head = self._buffer[self._start : self._start + 4]
            wanted = max(wanted, 4 + int.from_bytes(head, "big", signed=True))
        full = self._end == len(self._buffer)
        if self._start:
            self._buffer[:unread] = self._buffer[self._start : self._end]
            self._start, self._end = 0, unread
        size = len(self._buffer)
        if wanted > size:
            self._full = not self._grow(wanted - size)
        elif full and size < _LARGE_BUFFER:
            self._grow(size)  # busy: read more at a time
        elif size > 2 * _LARGE_BUFFER and not unread:
            self._memory.give(self._taken)
            self._buffer, self._taken = bytearray(_SMALL_BUFFER), 0
        if self._full:  # others hold all the memory for requests: come back when some is free
            self._suspend_reading()
            self._loop.call_later(_FULL_PAUSE, self._try_room)

    def _grow(self, size: int) -> bool:
        if not self._memory.take(size):
            return False
        self._taken += size
        self._buffer.extend(bytes(size))
        return True

    def _try_room(self) -> None:
        if self.open:
            self._full = False
            self._make_room()
            if not self._full and not self._paused:
                self._resume_reading()

    # -- requests ----------------------------------------------------------------------------

    def _request(self, position: int, stop: int) -> None:
        header = parse_header(self._buffer, position, stop)
        if header.key in APIS:
            self._counters.requests[header.key] += 1
        if header.key == PRODUCE:
            self._produce(header, stop)
            return
        self._commit()
        if header.key == API_VERSIONS:
            body = api_versions(header.version)
            frame = seal(APIS[API_VERSIONS], header.version, header.correlation, body)
            self._outbox.reserve().pieces = (frame,)
            return
        api = APIS.get(header.key)
        if api is None or not api.serves(header.version):
            name = header.key if api is None else api.name
            raise MalformedError(f"API {name} version {header.version} is not served")
        if header.key == FETCH:
            self._fetch(header, stop)
            return
        message = decode(api, header.version, bytes(self._buffer[header.body : stop]))
        request = Request(header, message, self.peer)
        task = self._loop.create_task(self._answer(request, self._outbox.reserve()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _produce(self, header: Header, stop: int) -> None:
        if header.version > APIS[PRODUCE].maximum or header.version < 0:
            raise MalformedError(f"API produce version {header.version} is not served")
        request = produce_messages.parse_request(self._buffer, header.body, stop, header.version)
        slot = self._outbox.reserve() if request.acks else None
        production = Production(header, request.acks, self, slot)
        self._productions.append(production)
        production.stage(self._node, request, self._buffer)

    def produced(self, place: Slot, frame: bytes) -> None:
        """The answer to a produce request; its place in the order was kept."""
        self._fill(place, (frame,))

    def _commit(self) -> None:
        if self._productions:
            productions, self._productions = self._productions, []
            commit(productions)

    def _fetch(self, header: Header, stop: int) -> None:
        request = fetch_messages.parse_request(self._buffer, header.body, stop, header.version)
        slot = self._outbox.reserve()

        def reply(pieces: list[Piece]) -> None:
            self._fetches.discard(fetch)
            self._fill(slot, pieces)

        fetch = Fetch(self._node, header, request, reply)
        self._fetches.add(fetch)
        fetch.start()

    async def _answer(self, request: Request, slot: Slot) -> None:
        header = request.header
        api = APIS[header.key]
        try:
            answer = await HANDLERS[header.key](self._node, request)
            body = answer if isinstance(answer, bytes) else encode(api, header.version, answer)
        except asyncio.CancelledError:
            raise
        except Exception:
            _log.exception("%s: %s v%d failed", self.peer, api.name, header.version)
            self.close("internal error")
            return
        self._fill(slot, (seal(api, header.version, header.correlation, body),))

    # -- writing -----------------------------------------------------------------------------

    def _fill(self, slot: Slot, pieces: tuple[bytes, ...] | list[Piece]) -> None:
        slot.pieces = pieces
        if not self._in_pass:
            self._send()

    def _send(self) -> None:
        if not self.open:
            return
        try:
            done = self._outbox.send()
            self.last_active = self._loop.time()
        except OSError as error:
            self.close(f"send failed: {error}")
            return
        if done and self._writing:
            self._loop.remove_writer(self._sock)
            self._writing = False
        elif not done and not self._writing:
            self._loop.add_writer(self._sock, self._send)
            self._writing = True
        if not done:
            self._paused = True
        if self._paused:
            self._suspend_reading()
            if done and len(self._outbox.slots) <= self._limits.in_flight // 2:
                self._paused = False
                if not self._full:
                    self._resume_reading()
                self._loop.call_soon(self._continue)

    def _continue(self) -> None:
        """Handle requests that were received before reading was suspended."""
        if self.open and not self._stopping:
            self._pass()

    def _resume_reading(self) -> None:
        if not self._reading and not self._stopping:
            self._loop.add_reader(self._sock, self._readable)
            self._reading = True

    def _suspend_reading(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._sock)
            self._reading = False

    def close(self, reason: str = "") -> None:
        """Close at once and call off everything that waits; a reason is logged."""
        if not self.open:
            return
        self.open = False
        if reason:
            self._counters.failed += 1
            _log.warning("closing %s: %s", self.peer, reason)
        self._memory.give(self._taken)
        self._suspend_reading()
        if self._writing:
            self._loop.remove_writer(self._sock)
        for fetch in tuple(self._fetches):
            fetch.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        self._sock.close()
        self._closed(self)

    def close_if_idle(self, since: float) -> None:
        """Close if no byte has moved since then, unless it waits for us."""
        waits_for_us = bool(self._outbox.slots) and not self._writing
        if self.last_active < since and not waits_for_us:
            self.close("idle")

    def stop_reading(self) -> None:
        """Take no more requests; those that were taken are still answered."""
        self._stopping = True
        self._suspend_reading()

    async def drain(self) -> None:
        """Wait until what is ready has been sent (for a graceful stop)."""
        while self.open and self._writing:
            await asyncio.sleep(0.005)
