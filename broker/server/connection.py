"""One client connection: bytes in, requests to the handlers, replies out in order.

Rules:

- A read pass takes what the socket has, handles every whole request in it, and writes the
  produced batches of the pass together (`Intake`). They lie in the receive buffer until then, so
  the buffer moves only between passes.
- Nothing blocks. A client that does not read its replies is not read from either, and one that
  leaves a request or its replies unfinished for too long is dropped.
- Where there are users, nothing but ApiVersions and SASL is answered before the login, one request
  at a time.
- MalformedError bytes close this connection with a log line; they never touch another one.
- When the connection goes, everything that waits for it is called off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from headworks._broker.handlers import HANDLERS, Client, Request
from headworks._broker.handlers.api_versions import api_versions
from headworks._broker.handlers.fetch import Fetch
from headworks._broker.handlers.permissions import RULES
from headworks._broker.server.authentication import Login, not_now
from headworks._broker.server.byte_stream import Transport
from headworks._broker.server.context import House
from headworks._broker.server.limits import Account
from headworks._broker.server.produce_pipeline import Intake
from headworks._broker.server.receive_buffer import Inbox
from headworks._broker.server.send_queue import Outbox, Slot
from headworks._broker.server.stall_detector import Pace
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
from headworks._kafka.protocol.apis import API_VERSIONS, FETCH, LOGIN, PRODUCE, SASL_HANDSHAKE
from headworks._kafka.protocol.fetch import Piece
from headworks._kafka.protocol.messages import Fields
from headworks.errors import UnreachableError

__all__ = ["Connection"]

_log = logging.getLogger(__name__)
_FULL_PAUSE = 0.05


class Connection:
    """A connection that was accepted; `closed` is called once, when it is gone."""

    def __init__(
        self,
        house: House,
        transport: Transport,
        peer: str,
        closed: Callable[[Connection], None],
    ) -> None:
        self.peer = peer
        self._node, self._limits, self._memory = house.node, house.limits, house.memory
        self._counters = house.node.counters
        self.client = Client(peer, self._counters, house.authority)
        self._transport = transport
        self._sock = transport.sock
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self.last_active = self._loop.time()
        self._account = Account(house.memory)
        self._outbox = Outbox(transport, self._account)
        self._inbox = Inbox(house.memory, self.last_active)
        self._intake = Intake(
            self._node, self.client, self._inbox, self._outbox, self._fill, self.close
        )
        self._fetches: set[Fetch] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._working = 0  # requests whose answer takes its time
        self._in_pass = False
        self._reading = self._writing = self._paused = self._stopping = self._full = False
        self._held = False  # the next request waits to be looked into
        self._pace = Pace(self._limits)
        self.open = True
        self._has_users = house.desk is not None
        self._login: Login | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._in_flight, self._largest = self._limits.in_flight, self._limits.request_bytes
        if house.desk is not None:
            self._login = Login(house.desk, peer)
            self._in_flight, self._largest = 1, self._limits.login_bytes
            self._deadline = self._loop.call_later(self._limits.setup_seconds, self._no_login)
        self._resume_reading()

    # -- reading -----------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            count = self._inbox.receive(self._transport.receive)
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
        if count == self._inbox.unread:
            self._inbox.since = self.last_active
        self._pass()
        if self._reading and self._transport.pending():
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
            self._intake.commit(self.last_active)
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
        inbox, outbox, intake, limits = self._inbox, self._outbox, self._intake, self._limits
        buffer, in_flight = inbox.buffer, self._in_flight
        while self.open and inbox.end - inbox.start >= 4:
            if (
                outbox.waiting >= in_flight
                or self._working >= limits.working
                or outbox.held > limits.reply_bytes
            ):
                self._paused = True
                return
            if intake.take_run(in_flight - outbox.waiting, self._largest, self.last_active):
                continue
            start = inbox.start + 4
            size = int.from_bytes(buffer[inbox.start : start], "big", signed=True)
            if not 8 <= size <= self._largest:
                raise MalformedError(inbox.wrong_size(size, self._largest))
            stop = start + size
            if stop > inbox.end:
                return
            self._request(start, stop)
            if self._held:
                return
            inbox.start = stop

    def _make_room(self) -> None:
        self._full = not self._inbox.make_room(self.last_active, whole=self._paused)
        if self._full:  # others hold all the memory for requests: come back when some is free
            self._suspend_reading()
            self._loop.call_later(_FULL_PAUSE, self._try_room)

    def _try_room(self) -> None:
        if self.open:
            self._make_room()
            if not self._full and not self._paused:
                self._inbox.since = self._loop.time()  # it was we who made it wait
                self._resume_reading()

    # -- requests ----------------------------------------------------------------------------

    def _request(self, position: int, stop: int) -> None:
        header = parse_header(self._inbox.buffer, position, stop)
        key = header.key
        api = APIS.get(key)
        if api is None:
            raise MalformedError(f"API {key} is not served")
        if key != PRODUCE:
            self._counters.requests[key] += 1
        if self._login is not None and not RULES[key].before_login:
            raise MalformedError(f"API {api.name} before login: a client without SASL?")
        if key == PRODUCE:
            wait = self._intake.take(header, position, stop, self.last_active)
            if wait is not None:
                self._hold(wait)
            return
        self._intake.commit(self.last_active)
        if key == API_VERSIONS:
            body = api_versions(header.version, login=self._has_users)
            frame = seal(api, header.version, header.correlation, body)
            self._fill(self._outbox.reserve(self.last_active), (frame,))
            return
        if not api.serves(header.version) and (key, header.version) != (SASL_HANDSHAKE, 0):
            raise MalformedError(f"API {api.name} version {header.version} is not served")
        charge = self._charge(stop - position, api.name)
        if charge is None:
            return
        if key == FETCH:
            self._fetch(header, stop, charge)
            return
        message = decode(api, header.version, bytes(self._inbox.buffer[header.body : stop]))
        slot = self._outbox.reserve(self.last_active)
        request = Request(header, message, self.client)
        task = self._loop.create_task(self._answer(request, slot, charge))
        self._working += 1
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _charge(self, size: int, name: str) -> int | None:
        """Account for a request that will be objects; None if there is no memory for it."""
        if size > self._limits.other_request_bytes:
            raise MalformedError(
                f"{name} of {size} bytes: at most {self._limits.other_request_bytes} are taken"
            )
        charge = self._account.charge(size)
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
        self._inbox.since = self._loop.time()  # it was we who made it wait
        if not self._paused and not self._full:
            self._resume_reading()
        self._continue()

    def _fetch(self, header: Header, stop: int, charge: int) -> None:
        buffer = self._inbox.buffer
        request = fetch_messages.parse_request(buffer, header.body, stop, header.version)
        slot = self._outbox.reserve(self.last_active)

        def reply(pieces: list[Piece]) -> None:
            self._fetches.discard(fetch)
            self._finish(slot, FETCH, charge, pieces)

        fetch = Fetch(self._node, self.client, header, request, reply)
        self._working += 1
        self._fetches.add(fetch)
        fetch.start()

    async def _answer(self, request: Request, slot: Slot, charge: int) -> None:
        header = request.header
        api = APIS[header.key]
        try:
            if header.key in LOGIN:
                login = self._login
                answer: Fields | bytes
                answer = not_now() if login is None else await login.answer(request)
            else:
                answer = await HANDLERS[header.key](self._node, request)
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
        frame = seal(api, header.version, header.correlation, body)
        self._finish(slot, header.key, charge, [frame])
        if self._login is not None:
            self._see_who_it_is(self._login)

    def _see_who_it_is(self, login: Login) -> None:
        """After a step of the login: open the door, or close it."""
        if login.failed:
            self._counters.logins[login.mechanism, "failed"] += 1
            self.close(login.failed, "login")
        elif login.principal is not None and self.open:
            self._counters.logins[login.mechanism, "succeeded"] += 1
            self.client.log_in(login.principal)
            self._login = None
            self._in_flight, self._largest = self._limits.in_flight, self._limits.request_bytes
            if self._deadline is not None:
                self._deadline.cancel()
            about = self._about() | {"mechanism": login.mechanism}
            _log.info("%s is %s", self.peer, login.principal.name, extra=about)

    def _no_login(self) -> None:
        self.close(f"no login within {self._limits.setup_seconds:g} s", "login")

    # -- writing -----------------------------------------------------------------------------

    def _finish(self, slot: Slot, key: int, charge: int, pieces: list[Piece]) -> None:
        """The answer to a request that was worked on."""
        if not self.open:
            return
        self._working -= 1
        self._account.give(charge)
        self._counters.seconds[key].observe(self._loop.time() - slot.since)
        self._fill(slot, pieces)

    def _fill(self, slot: Slot, pieces: Sequence[Piece]) -> None:
        """Send a reply when those before it are sent."""
        if not self.open:
            return
        self._outbox.fill(slot, pieces)
        if not self._in_pass:
            self._send()

    def _send(self) -> None:
        if not self.open:
            return
        outbox, before = self._outbox, self._outbox.sent
        try:
            done = outbox.send()
        except OSError as error:
            self.close(f"send failed: {error}", "network")
            return
        if not outbox.settle():
            self.close("no memory for a reply", "memory")
            return
        if outbox.sent != before:
            self._counters.sent_bytes += outbox.sent - before
            self.last_active = self._loop.time()
        if done and self._writing:
            self._loop.remove_writer(self._sock)
            self._writing = False
        elif not done and not self._writing:
            self._loop.add_writer(self._sock, self._send)
            self._writing = True
            self._pace.blocked(self._loop.time(), outbox.sent)
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
            self._outbox.waiting <= self._in_flight // 2
            and self._working <= limits.working // 2
            and self._outbox.held <= limits.reply_bytes
        )

    def _continue(self) -> None:
        """Handle requests that were received before reading was suspended."""
        if self.open and not self._stopping:
            self._pass()

    def _resume_reading(self) -> None:
        if not (self._reading or self._stopping or self._held):
            self._loop.add_reader(self._sock, self._readable)
            self._reading = True
            if self._transport.pending():
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
        self._inbox.close()
        self._outbox.close()
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
        self._transport.close()
        self._closed(self)

    def close_if_slow(self, now: float) -> None:
        """Close if it is silent without waiting for us, or if it has not finished for too long."""
        inbox, short, slow = self._inbox, self._memory.short, ""
        if self._writing:
            slow = self._pace.unread(now, self._outbox.sent, short=short)
        elif inbox.unread and not (self._paused or self._full or self._stopping or self._held):
            slow = self._pace.unfinished(now, inbox.since, inbox.unread, short=short)
        elif short:
            inbox.shrink()
        if slow:
            self.close(slow, "stalled")
            return
        waits_for_us = self._held or (self._outbox.waiting > 0 and not self._writing)
        if self.last_active < now - self._limits.idle_seconds and not waits_for_us:
            self.close("idle", "idle")

    @property
    def held(self) -> int:
        """Bytes in memory that wait to be sent."""
        return self._outbox.held

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
