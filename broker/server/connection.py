"""One client connection: bytes in, requests to the handlers, replies out in order.

Rules:

- A read pass receives what the socket has, handles every whole request, and writes the produced
  batches of the pass together (`ProducePipeline`). They lie in the receive buffer until then, so
  the buffer moves only between passes.
- Nothing blocks. The broker does not read from a client that does not read its replies. It drops a
  client that leaves a request or its replies unfinished for too long.
- If the broker has users, a client must log in first: until then only ApiVersions and SASL are
  answered, one request at a time.
- Malformed bytes close this connection with a log line and touch no other connection.
- Closing a connection cancels everything that waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from headworks._broker.handlers import BROKER_APIS, Client, Request
from headworks._broker.handlers.api_versions import api_versions
from headworks._broker.handlers.fetch import Fetch
from headworks._broker.server.authentication import SaslLogin, not_now
from headworks._broker.server.byte_stream import ByteStream
from headworks._broker.server.context import ServerContext
from headworks._broker.server.limits import MemoryAccount
from headworks._broker.server.produce_pipeline import ProducePipeline
from headworks._broker.server.receive_buffer import ReceiveBuffer
from headworks._broker.server.send_queue import ReplySlot, SendQueue
from headworks._broker.server.stall_detector import StallDetector
from headworks._kafka.protocol import (
    APIS,
    Header,
    MalformedError,
    decode,
    encode,
    parse_header,
    seal,
)
from headworks._kafka.protocol import fetch as fetch_messages
from headworks._kafka.protocol.apis import BEFORE_LOGIN, SASL_APIS, ApiKey
from headworks._kafka.protocol.fetch import Piece
from headworks._kafka.protocol.messages import Fields
from headworks.errors import UnreachableError

__all__ = ["Connection"]

_log = logging.getLogger(__name__)
_FULL_PAUSE_SECONDS = 0.05
_TLS_HELLO = b"\x16\x03"
_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI")


class Connection:
    """A connection that was accepted; `closed` is called once, when it is gone."""

    def __init__(
        self,
        context: ServerContext,
        stream: ByteStream,
        peer: str,
        closed: Callable[[Connection], None],
    ) -> None:
        self.peer = peer
        self._node, self._limits, self._memory = context.node, context.limits, context.memory
        self._counters = context.node.counters
        self.client = Client(peer, self._counters, context.authorizer)
        self._stream = stream
        self._sock = stream.sock
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self.last_active = self._loop.time()
        self._account = MemoryAccount(context.memory)
        self._replies = SendQueue(stream, self._account)
        self._received = ReceiveBuffer(context.memory, self.last_active)
        self._produce = ProducePipeline(
            self._node, self.client, self._received, self._replies, self._fill, self.close
        )
        self._fetches: set[Fetch] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._working = 0  # requests whose answer takes its time
        self._in_pass = False
        self._reading = self._writing = self._paused = self._stopping = self._full = False
        self._held = False  # the next request waits to be looked into
        self._stalls = StallDetector(self._limits)
        self.open = True
        self._has_users = context.authenticator is not None
        self._login: SaslLogin | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._in_flight, self._largest = self._limits.max_in_flight, self._limits.max_request_bytes
        if context.authenticator is not None:
            self._login = SaslLogin(context.authenticator, peer)
            self._in_flight, self._largest = 1, self._limits.max_login_bytes
            self._deadline = self._loop.call_later(self._limits.setup_seconds, self._no_login)
        self._resume_reading()

    # -- reading -----------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            count = self._received.receive(self._stream.receive)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(f"receive failed: {error}", "network")
            return
        if not count:
            self.close()
            return
        self._counters.received_bytes += count
        self.last_active = self._loop.time()
        if count == self._received.unhandled:
            self._received.begun_at = self.last_active
        self._pass()
        if self._reading and self._stream.pending():
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._reading:
            self._readable()

    def _pass(self) -> None:
        """Handle every whole request in the buffer, then write and send together."""
        failure, kind = "", "malformed"
        self._in_pass = True
        try:
            self._requests()
        except MalformedError as error:
            failure = f"malformed request: {error}"
        except Exception:
            _log.exception("%s: request failed", self.peer, extra=self._about())
            failure, kind = "internal error", "internal"
        try:
            # what came before the failure in this pass is taken and answered
            self._produce.commit(self.last_active)
        except Exception:
            _log.exception("%s: writing failed", self.peer, extra=self._about())
            failure, kind = "internal error", "internal"
        self._in_pass = False
        if self.open:
            if not failure:  # after one, what is first in the buffer may promise any size
                self._make_room()
            self._send()
        if failure:
            self.close(failure, kind)

    def _requests(self) -> None:
        if self._held:
            return
        received, replies, produce, limits = (
            self._received,
            self._replies,
            self._produce,
            self._limits,
        )
        buffer, max_in_flight = received.buffer, self._in_flight
        while self.open and received.end - received.start >= 4:
            if (
                replies.waiting >= max_in_flight
                or self._working >= limits.max_pending
                or replies.unsent > limits.max_unsent_bytes
            ):
                self._paused = True
                return
            if produce.coalesce(max_in_flight - replies.waiting, self._largest, self.last_active):
                continue
            start = received.start + 4
            size = int.from_bytes(buffer[received.start : start], "big", signed=True)
            if not 8 <= size <= self._largest:
                raise MalformedError(_wrong_size(received, size, self._largest))
            stop = start + size
            if stop > received.end:
                return
            self._request(start, stop)
            if self._held:
                return
            received.start = stop

    def _make_room(self) -> None:
        received, expected = self._received, 0
        if received.unhandled >= 4 and not self._paused:  # else whole requests wait to be handled
            head = received.buffer[received.start : received.start + 4]
            expected = 4 + int.from_bytes(head, "big", signed=True)
        self._full = not received.make_room(self.last_active, expected=expected)
        if self._full:  # others hold all the memory for requests: come back when some is free
            self._suspend_reading()
            self._loop.call_later(_FULL_PAUSE_SECONDS, self._try_room)

    def _try_room(self) -> None:
        if self.open:
            self._make_room()
            if not self._full and not self._paused:
                self._received.begun_at = self._loop.time()  # it was we who made it wait
                self._resume_reading()

    # -- requests ----------------------------------------------------------------------------

    def _request(self, position: int, stop: int) -> None:
        header = parse_header(self._received.buffer, position, stop)
        key = header.key
        api = APIS.get(key)
        if api is None:
            raise MalformedError(f"API {key} is not served")
        if key != ApiKey.PRODUCE:
            self._counters.requests[key] += 1
        if self._login is not None and key not in BEFORE_LOGIN:
            raise MalformedError(f"API {api.name} before login: a client without SASL?")
        if key == ApiKey.PRODUCE:
            wait = self._produce.take(header, position, stop, self.last_active)
            if wait is not None:
                self._hold(wait)
            return
        self._produce.commit(self.last_active)
        if key == ApiKey.API_VERSIONS:
            body = api_versions(header.version, login=self._has_users)
            frame = seal(api, header.version, header.correlation_id, body)
            self._fill(self._replies.reserve(self.last_active), (frame,))
            return
        if not api.serves(header.version) and (key, header.version) != (ApiKey.SASL_HANDSHAKE, 0):
            raise MalformedError(f"API {api.name} version {header.version} is not served")
        charge = self._charge(stop - position, api.name)
        if charge is None:
            return
        if key == ApiKey.FETCH:
            self._fetch(header, stop, charge)
            return
        message = decode(api, header.version, bytes(self._received.buffer[header.body : stop]))
        slot = self._replies.reserve(self.last_active)
        request = Request(header, message, self.client)
        task = self._loop.create_task(self._answer(request, slot, charge))
        self._working += 1
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _charge(self, size: int, name: str) -> int | None:
        """Account for a request that will be objects; None if there is no memory for it."""
        if size > self._limits.max_other_request_bytes:
            raise MalformedError(
                f"{name} of {size} bytes: at most {self._limits.max_other_request_bytes} are taken"
            )
        charge = self._account.charge_request(size)
        if charge is None:
            self.close(f"no memory for a request of {size} bytes ({name})", "memory")
        return charge

    def _hold(self, until: Coroutine[Any, Any, None]) -> None:
        """Leave the request where it is until that is done."""
        self._held = True
        self._suspend_reading()
        task = self._loop.create_task(self._release(until))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _release(self, until: Coroutine[Any, Any, None]) -> None:
        await until
        self._held = False
        self._received.begun_at = self._loop.time()  # it was we who made it wait
        if not self._paused and not self._full:
            self._resume_reading()
        self._continue()

    def _fetch(self, header: Header, stop: int, charge: int) -> None:
        buffer = self._received.buffer
        request = fetch_messages.parse_request(buffer, header.body, stop, header.version)
        slot = self._replies.reserve(self.last_active)

        def reply(pieces: list[Piece]) -> None:
            self._fetches.discard(fetch)
            self._finish(slot, ApiKey.FETCH, charge, pieces)

        fetch = Fetch(self._node, self.client, header, request, reply)
        self._working += 1
        self._fetches.add(fetch)
        fetch.start()

    async def _answer(self, request: Request, slot: ReplySlot, charge: int) -> None:
        header = request.header
        api = APIS[header.key]
        try:
            if header.key in SASL_APIS:
                login = self._login
                answer: Fields | bytes
                answer = not_now() if login is None else await login.answer(request)
            else:
                handler = BROKER_APIS[header.key].handler
                assert handler is not None
                answer = await handler(self._node, request)
            if isinstance(answer, bytes):
                body = answer
            else:
                self._counters.count_errors(header.key, answer)
                body = encode(api, header.version, answer)
        except asyncio.CancelledError:
            raise
        except UnreachableError as error:  # the client asks again, here or elsewhere
            self.close(f"{api.name}: {error}", "coordination")
            return
        except Exception:
            _log.exception("%s: %s failed", self.peer, api.name, extra=self._about())
            self.close("internal error", "internal")
            return
        frame = seal(api, header.version, header.correlation_id, body)
        self._finish(slot, header.key, charge, [frame])
        if self._login is not None:
            self._see_who_it_is(self._login)

    def _see_who_it_is(self, login: SaslLogin) -> None:
        """After a step of the login: open the door, or close it."""
        if login.failed:
            self._counters.logins[login.mechanism, "failed"] += 1
            self.close(login.failed, "login")
        elif login.principal is not None and self.open:
            self._counters.logins[login.mechanism, "succeeded"] += 1
            self.client.log_in(login.principal)
            self._login = None
            self._in_flight, self._largest = (
                self._limits.max_in_flight,
                self._limits.max_request_bytes,
            )
            if self._deadline is not None:
                self._deadline.cancel()
            about = self._about() | {"mechanism": login.mechanism}
            _log.info("%s is %s", self.peer, login.principal.name, extra=about)

    def _no_login(self) -> None:
        self.close(f"no login within {self._limits.setup_seconds:g} s", "login")

    # -- writing -----------------------------------------------------------------------------

    def _finish(self, slot: ReplySlot, key: int, charge: int, pieces: list[Piece]) -> None:
        """The answer to a request that was worked on."""
        if not self.open:
            return
        self._working -= 1
        self._account.release(charge)
        self._counters.seconds[key].observe(self._loop.time() - slot.arrived_at)
        self._fill(slot, pieces)

    def _fill(self, slot: ReplySlot, pieces: Sequence[Piece]) -> None:
        """Send a reply when those before it are sent."""
        if not self.open:
            return
        self._replies.fill(slot, pieces)
        if not self._in_pass:
            self._send()

    def _send(self) -> None:
        if not self.open:
            return
        replies, before = self._replies, self._replies.sent
        try:
            done = replies.send()
        except OSError as error:
            self.close(f"send failed: {error}", "network")
            return
        if not replies.settle():
            self.close("no memory for a reply", "memory")
            return
        if replies.sent != before:
            self._counters.sent_bytes += replies.sent - before
            self.last_active = self._loop.time()
        if done and self._writing:
            self._loop.remove_writer(self._sock)
            self._writing = False
        elif not done and not self._writing:
            self._loop.add_writer(self._sock, self._send)
            self._writing = True
            self._stalls.replies_blocked(self._loop.time(), replies.sent)
        if not done:
            self._paused = True
        if self._paused:
            self._suspend_reading()
            if done and self._has_room():
                self._paused = False
                if not self._full:
                    self._resume_reading()
                self._loop.call_soon(self._continue)

    def _has_room(self) -> bool:
        """Whether more requests may be taken after a pause."""
        limits = self._limits
        return (
            self._replies.waiting <= self._in_flight // 2
            and self._working <= limits.max_pending // 2
            and self._replies.unsent <= limits.max_unsent_bytes
        )

    def _continue(self) -> None:
        """Handle requests that were received before reading was suspended."""
        if self.open and not self._stopping:
            self._pass()

    def _resume_reading(self) -> None:
        if not (self._reading or self._stopping or self._held):
            self._loop.add_reader(self._sock, self._readable)
            self._reading = True
            if self._stream.pending():
                self._loop.call_soon(self._read_on)

    def _suspend_reading(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._sock)
            self._reading = False

    # -- the end -----------------------------------------------------------------------------

    def close(self, reason: str = "", kind: str = "refused") -> None:
        """Close at once and call off everything that waits; a reason is logged and counted."""
        if not self.open:
            return
        self.open = False
        if reason:
            self._counters.failed[kind] += 1
            _log.warning("closing %s: %s", self.peer, reason, extra=self._about() | {"kind": kind})
        self._received.close()
        self._replies.close()
        self._account.close()
        if self._deadline is not None:
            self._deadline.cancel()
        self._suspend_reading()
        if self._writing:
            self._loop.remove_writer(self._sock)
        for fetch in tuple(self._fetches):
            fetch.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        self._stream.close()
        self._closed(self)

    def close_if_slow(self, now: float) -> None:
        """Close if it is silent without waiting for us, or if it has not finished for too long."""
        received, short, slow = self._received, self._memory.exhausted, ""
        if self._writing:
            slow = self._stalls.check_unread_replies(now, self._replies.sent, low_memory=short)
        elif received.unhandled and not (
            self._paused or self._full or self._stopping or self._held
        ):
            slow = self._stalls.check_unfinished_request(
                now, received.begun_at, received.unhandled, low_memory=short
            )
        elif short:
            received.shrink()
        if slow:
            self.close(slow, "stalled")
            return
        waits_for_us = self._held or (self._replies.waiting > 0 and not self._writing)
        if self.last_active < now - self._limits.idle_seconds and not waits_for_us:
            self.close("idle", "idle")

    @property
    def held(self) -> int:
        """Bytes in memory that wait to be sent."""
        return self._replies.unsent

    def stop_reading(self) -> None:
        """Take no more requests; those that were taken are still answered."""
        self._stopping = True
        self._suspend_reading()

    async def drain(self) -> None:
        """Wait until what is ready has been sent (for a graceful stop)."""
        while self.open and self._writing:
            await asyncio.sleep(0.005)

    def _about(self) -> dict[str, str]:
        """What a log record says of it."""
        login = self._login
        if login is None:
            return {"peer": self.peer, "principal": self.client.principal.name}
        return {"peer": self.peer, "principal": login.name, "mechanism": login.mechanism}


def _wrong_size(received: ReceiveBuffer, size: int, largest: int) -> str:
    hint = ""
    if received.buffer.startswith(_TLS_HELLO, received.start):
        hint = "; a TLS client, and this is not TLS?"
    elif received.buffer.startswith(_HTTP, received.start):
        hint = "; it speaks HTTP"
    return f"a request of {size} bytes is not within 8..{largest}{hint}"
