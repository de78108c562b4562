"""One client connection: moves bytes between the socket and the parts that understand them.

`ConnectionState` finds the requests and knows when none may be taken. `ProducePipeline` and
`RequestDispatcher` handle them.

Rules:

- A read pass receives what the socket has, handles every whole request, and writes the produced
  batches of the pass together. They lie in the receive buffer until then, so the buffer moves only
  between passes.
- Nothing blocks. The broker does not read from a client that does not read its replies. It drops a
  client that leaves a request or its replies unfinished for too long.
- Malformed bytes close this connection with a log line and touch no other connection.
- Closing a connection cancels everything that waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import monotonic

from headworks._broker.handlers import Client
from headworks._broker.server.byte_stream import ByteStream
from headworks._broker.server.context import ServerContext
from headworks._broker.server.limits import MemoryAccount
from headworks._broker.server.produce_pipeline import ProducePipeline
from headworks._broker.server.receive_buffer import ReceiveBuffer
from headworks._broker.server.request_dispatcher import RequestDispatcher
from headworks._broker.server.send_queue import ReplySlot, SendQueue
from headworks._broker.server.stall_detector import StallDetector
from headworks._kafka.protocol import ApiKey, MalformedError, RequestHeader
from headworks._kafka.protocol.connection_state import (
    PREFIX_BYTES,
    ConnectionState,
    Hold,
    Phase,
    PhaseInput,
    ProtocolError,
)
from headworks._kafka.protocol.fetch import Piece

_log = logging.getLogger(__name__)
_MEMORY_RETRY_SECONDS = 0.05
_NO_MEMORY = "the machine has no memory for its request"  # the client may try again
_DRAIN_POLL_SECONDS = 0.005
_PRODUCE = int(ApiKey.PRODUCE)


class Connection:
    """An accepted connection; `closed` is called once, when it is closed."""

    def __init__(
        self,
        context: ServerContext,
        stream: ByteStream,
        peer: str,
        closed: Callable[[Connection], None],
    ) -> None:
        node = context.node
        self.peer = peer  # the client's HOST:PORT
        self.client = Client(
            peer, node.counters, context.authorizer
        )  # its principal and permissions
        self._loop = asyncio.get_running_loop()  # calls `_readable` and `_send`
        self._limits, self._memory, self._counters = context.limits, context.memory, node.counters
        self._stream = stream  # the socket, in plaintext or through TLS
        self._closed = closed  # called once, when the connection has ended
        self._last_active = monotonic()  # when bytes were received or sent
        # The phase and the holds; it decides what may be read and taken.
        self._state = ConnectionState(
            context.limits, login_required=context.authenticator is not None
        )
        self._account = MemoryAccount(context.memory)  # pays for requests and unsent replies
        self._replies = SendQueue(stream, self._account)  # unsent, in the order of their requests
        self._received = ReceiveBuffer(context.memory, self._last_active)  # not yet taken requests
        self._stalls = StallDetector(context.limits)  # closes clients that move too few bytes
        # Takes produce requests.
        self._produce = ProducePipeline(
            node, self.client, self._received, self._replies, self._fill, self.close
        )
        # Takes all other requests.
        self._dispatcher = RequestDispatcher(
            context,
            self.client,
            self._state,
            self._account,
            self._replies,
            self._fill,
            self.close,
        )
        self._expected = 0  # bytes of the request that has begun to arrive, if they are known
        self._validating: asyncio.Task[None] | None = None  # `Hold.VALIDATION` waits for it
        self._in_pass = False  # replies of a pass are sent together, at its end
        self._watches_reading = False  # whether the event loop does; it follows the state
        self._watches_writing = False  # the same; it follows the replies
        self._watch_reading()

    # -- reading -----------------------------------------------------------------------------

    def _readable(self) -> None:
        received = self._received
        try:
            count = received.receive(self._stream.receive)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(f"receive failed: {error}", "network")
            return
        if not count:
            self.close()
            return
        self._counters.received_bytes += count
        self._last_active = monotonic()
        if count == received.unhandled:
            received.begun_at = self._last_active
        self._pass()
        if self._watches_reading and self._stream.pending():
            self._loop.call_soon(self._read_pending)

    def _read_pending(self) -> None:
        """Receive bytes that TLS has decrypted, which the event loop does not see."""
        if self._watches_reading:
            self._readable()

    def _pass(self) -> None:
        """Handle every whole request in the buffer, then write and send together."""
        failure, kind = "", "malformed"
        self._in_pass = True
        try:
            failure = self._handle_requests()
        except MalformedError as error:
            failure = f"malformed request: {error}"
        except MemoryError:
            failure, kind = _NO_MEMORY, "memory"
        except Exception:
            _log.exception("%s: request failed", self.peer, extra=self._dispatcher.log_fields())
            failure, kind = "internal error", "internal"
        try:
            # requests before the failure are written and answered
            self._produce.commit(self._last_active)
        except MemoryError:
            failure, kind = _NO_MEMORY, "memory"
        except Exception:
            _log.exception("%s: writing failed", self.peer, extra=self._dispatcher.log_fields())
            failure, kind = "internal error", "internal"
        self._in_pass = False
        if not self._state.closed:
            if not failure:
                try:
                    self._make_room()
                except MemoryError:
                    failure, kind = _NO_MEMORY, "memory"
            if self._replies.unsent or self._state.holds:  # else all wait for a flush or data
                self._send()
        if failure:
            self.close(failure, kind)

    def _handle_requests(self) -> str:
        """Handle the whole requests that may be taken. Return what is malformed, or ""."""
        state, received, replies = self._state, self._received, self._replies
        dispatcher, produce, now = self._dispatcher, self._produce, self._last_active
        self._expected = 0
        while state.takes_requests:
            if received.end - received.start < PREFIX_BYTES or state.hold_for_replies(
                replies.waiting, dispatcher.pending, replies.unsent
            ):
                break
            room = state.max_in_flight - replies.waiting
            if produce.take_matching(room, state.max_request_bytes, now):
                continue
            event = state.next_event(received.buffer, received.start, received.end)
            if isinstance(event, RequestHeader):
                if event.key != _PRODUCE:
                    self._counters.requests[event.key] += 1
                    produce.commit(now)
                    dispatcher.dispatch(event, received.buffer, now)
                elif not produce.take(event, now):
                    self._wait_for_validation()
                    break
                received.start = event.end
            elif isinstance(event, ProtocolError):
                if event.key is not None and event.key != _PRODUCE:
                    self._counters.requests[event.key] += 1
                return f"malformed request: {event.message}"
            else:
                self._expected = event.size
                break
        return ""

    def _make_room(self) -> bool:
        """Fit the buffer to the next request; if the pool has no memory, hold and retry."""
        expected = self._expected
        if self._state.holds and Hold.REPLIES in self._state.holds:
            expected = 0  # the next request waits: it needs no more room yet
        if self._received.make_room(self._last_active, expected=expected):
            if self._state.holds:
                self._state.release(Hold.MEMORY)
            return True
        self._state.hold(Hold.MEMORY)
        self._watch_reading()
        self._loop.call_later(_MEMORY_RETRY_SECONDS, self._retry_room)
        return False

    def _retry_room(self) -> None:
        try:
            fits = not self._state.closed and self._make_room()
        except MemoryError:
            self.close(_NO_MEMORY, "memory")
            return
        if fits:
            if Hold.REPLIES not in self._state.holds:
                self._received.begun_at = monotonic()  # the broker made the client wait
            self._watch_reading()

    def _wait_for_validation(self) -> None:
        """Leave the next request in the buffer until its records are validated."""
        self._state.hold(Hold.VALIDATION)
        self._watch_reading()
        self._validating = self._loop.create_task(self._validate())

    async def _validate(self) -> None:
        await self._produce.validated()
        self._state.release(Hold.VALIDATION)
        self._received.begun_at = monotonic()  # the broker made the client wait
        self._watch_reading()
        self._continue()

    def _continue(self) -> None:
        """Handle requests that were received before a hold."""
        if self._state.phase in (Phase.LOGIN, Phase.OPEN):
            self._pass()

    def _watch_reading(self) -> None:
        """Make the event loop watch for bytes exactly while the state lets us receive."""
        if self._watches_reading == self._state.receives:
            return
        self._watches_reading = self._state.receives
        if not self._watches_reading:
            self._loop.remove_reader(self._stream.sock)
            return
        self._loop.add_reader(self._stream.sock, self._readable)
        if self._stream.pending():
            self._loop.call_soon(self._read_pending)

    # -- writing -----------------------------------------------------------------------------

    def _fill(self, slot: ReplySlot, pieces: Sequence[Piece]) -> None:
        """Send a reply as soon as the replies before it are sent."""
        if self._state.closed:
            return
        self._replies.fill(slot, pieces)
        if not self._in_pass:
            self._send()

    def _send(self) -> None:
        if self._state.closed:
            return
        replies, before = self._replies, self._replies.sent
        try:
            done = replies.send()
        except OSError as error:
            self.close(f"send failed: {error}", "internal" if error.errno is None else "network")
            return
        if not replies.settle():
            self.close("no memory for a reply", "memory")
            return
        if replies.sent != before:
            self._counters.sent_bytes += replies.sent - before
            self._last_active = monotonic()
        if done and self._watches_writing:
            self._loop.remove_writer(self._stream.sock)
            self._watches_writing = False
        elif not done and not self._watches_writing:
            self._loop.add_writer(self._stream.sock, self._send)
            self._watches_writing = True
            self._stalls.replies_blocked(monotonic(), replies.sent)
        if not done:
            self._state.hold(Hold.REPLIES)
        if self._state.holds:
            self._resume_if_read(done=done)

    def _resume_if_read(self, *, done: bool) -> None:
        """End the hold for replies if the client has read enough of them."""
        state, replies = self._state, self._replies
        if (
            done
            and Hold.REPLIES in state.holds
            and state.release_replies(replies.waiting, self._dispatcher.pending, replies.unsent)
        ):
            self._loop.call_soon(self._continue)
        self._watch_reading()

    # -- the end -----------------------------------------------------------------------------

    def close(self, reason: str = "", kind: str = "refused") -> None:
        """Close at once and cancel everything that waits; a reason is logged and counted."""
        if self._state.closed:
            return
        self._state.move(PhaseInput.CLOSE)
        if reason:
            self._counters.failed[kind] += 1
            fields = self._dispatcher.log_fields() | {"kind": kind}
            level = logging.INFO if kind == "network" else logging.WARNING  # clients leave all day
            _log.log(level, "closing %s: %s", self.peer, reason, extra=fields)
        self._received.close()
        self._replies.close()
        self._account.close()
        self._watch_reading()
        if self._watches_writing:
            self._loop.remove_writer(self._stream.sock)
        self._dispatcher.cancel()
        if self._validating is not None:
            self._validating.cancel()
        self._stream.close()
        self._closed(self)

    def close_if_slow(self, now: float) -> None:
        """Close if the client stalls, or if it is idle without waiting for the broker."""
        state, received, replies = self._state, self._received, self._replies
        low_memory, verdict = self._memory.exhausted, ""
        if self._watches_writing:
            verdict = self._stalls.check_unread_replies(now, replies.sent, low_memory=low_memory)
        elif received.unhandled and state.receives:
            verdict = self._stalls.check_unfinished_request(
                now, received.begun_at, received.unhandled, low_memory=low_memory
            )
        elif low_memory:
            received.shrink()
        if verdict:
            self.close(verdict, "stalled")
            return
        waits_for_broker = Hold.VALIDATION in state.holds or (
            replies.waiting > 0 and not self._watches_writing
        )
        if self._last_active < now - self._limits.idle_seconds and not waits_for_broker:
            self.close("idle", "idle")

    @property
    def unsent(self) -> int:
        """Bytes of replies in memory that wait to be sent."""
        return self._replies.unsent

    def stop_reading(self) -> None:
        """Take no more requests; answer those that were taken."""
        if self._state.phase in (Phase.LOGIN, Phase.OPEN):
            self._state.move(PhaseInput.STOP)
            self._watch_reading()

    async def drain(self) -> None:
        """Wait until the ready replies are sent, for a graceful stop."""
        while not self._state.closed and self._watches_writing:
            await asyncio.sleep(_DRAIN_POLL_SECONDS)
