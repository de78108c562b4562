"""Hands the requests of one connection to their handlers, and their answers to the connection.

Produce is not among them: see `ProducePipeline`.

Rules: a request that is parsed into objects pays for their memory until it is answered. Its reply
keeps its place in the order from the beginning. `cancel` ends everything that still waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headworks._broker.handlers import BROKER_APIS, Client, Request
from headworks._broker.handlers.api_versions import api_versions
from headworks._broker.handlers.fetch import Fetch, suspect_last_fetch
from headworks._broker.server.authentication import SaslLogin, login_not_expected
from headworks._broker.server.context import ServerContext
from headworks._broker.server.limits import MemoryAccount
from headworks._broker.server.send_queue import ReplySlot, SendQueue
from headworks._kafka.protocol import APIS, ApiKey, RequestHeader, decode, encode, seal
from headworks._kafka.protocol import fetch as fetch_messages
from headworks._kafka.protocol.apis import SASL_APIS
from headworks._kafka.protocol.connection_state import ConnectionState, PhaseInput
from headworks._kafka.protocol.fetch import Piece
from headworks.errors import UnreachableError

_log = logging.getLogger(f"{__package__}.connection")  # as the rest of a connection

_FETCH, _API_VERSIONS = int(ApiKey.FETCH), int(ApiKey.API_VERSIONS)


class RequestDispatcher:
    """The requests of one connection; `reply` and `close` are the connection's."""

    def __init__(
        self,
        context: ServerContext,
        client: Client,
        state: ConnectionState,
        account: MemoryAccount,
        replies: SendQueue,
        reply: Callable[[ReplySlot, list[Piece]], None],
        close: Callable[[str, str], None],
    ) -> None:
        self.pending = 0  # requests that are being handled
        self._node, self._limits, self._counters = (
            context.node,
            context.limits,
            context.node.counters,
        )
        self._client, self._state = client, state
        self._account, self._replies = account, replies
        self._reply, self._close = reply, close
        self._loop = asyncio.get_running_loop()
        self._fetches: set[Fetch] = set()  # that wait for data
        self._tasks: set[asyncio.Task[None]] = set()  # of all other requests
        self._has_users = context.authenticator is not None
        self._login: SaslLogin | None = None  # until it succeeds
        self._login_timer: asyncio.TimerHandle | None = None  # closes a connection without login
        if context.authenticator is not None:
            self._login = SaslLogin(context.authenticator, client.peer)
            seconds = self._limits.setup_seconds
            self._login_timer = self._loop.call_later(seconds, self._login_timed_out)

    def dispatch(self, header: RequestHeader, buffer: bytearray, arrived_at: float) -> None:
        """Handle a request that lies in the buffer. MalformedError if its body does not parse."""
        key, version = header.key, header.version
        if key == _API_VERSIONS:
            body = api_versions(
                version,
                login=self._has_users,
                transactions=self._node.transactions is not None,
            )
            frame = seal(APIS[key], version, header.correlation_id, body)
            self._reply(self._replies.reserve(arrived_at), [frame])
            return
        size = header.end - header.start
        charge = self._account.charge_request(size)
        if charge is None:
            name = APIS[key].name
            self._close(f"no memory for a request of {size} bytes ({name})", "memory")
        elif key == _FETCH:
            self._fetch(header, buffer, arrived_at, charge)
        else:
            message = decode(APIS[key], version, bytes(buffer[header.body : header.end]))
            slot = self._replies.reserve(arrived_at)
            request = Request(header, message, self._client)
            self.pending += 1
            task = self._loop.create_task(self._answer(request, slot, charge))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Cancel every request that waits, because the connection is closed."""
        if self._login_timer is not None:
            self._login_timer.cancel()
        suspect_last_fetch(self._node, self._client)  # it may have ended the client
        for fetch in tuple(self._fetches):
            fetch.cancel()
        for task in tuple(self._tasks):
            task.cancel()

    def log_fields(self) -> dict[str, str]:
        """Return the fields of a log record about the connection."""
        login = self._login
        if login is None:
            return {"peer": self._client.peer, "principal": self._client.principal.name}
        return {"peer": self._client.peer, "principal": login.name, "mechanism": login.mechanism}

    def _fetch(
        self, header: RequestHeader, buffer: bytearray, arrived_at: float, charge: int
    ) -> None:
        request = fetch_messages.parse_request(buffer, header.body, header.end, header.version)
        slot = self._replies.reserve(arrived_at)

        def reply(pieces: list[Piece]) -> None:
            self._fetches.discard(fetch)
            self._finish(slot, _FETCH, charge, pieces)

        fetch = Fetch(self._node, self._client, header, request, reply)
        self.pending += 1
        self._fetches.add(fetch)
        fetch.start()

    async def _answer(self, request: Request, slot: ReplySlot, charge: int) -> None:
        """Run the handler. If it fails, close the connection: the client then retries."""
        header = request.header
        api = APIS[header.key]
        try:
            body = await self._body(request)
        except asyncio.CancelledError:
            raise
        except UnreachableError as error:
            self._close(f"{api.name}: {error}", "coordination")
            return
        except MemoryError:
            self._close(f"the machine has no memory for {api.name}", "memory")
            return
        except Exception:
            fields = self.log_fields()
            _log.exception("%s: %s failed", self._client.peer, api.name, extra=fields)
            self._close("internal error", "internal")
            return
        frame = seal(api, header.version, header.correlation_id, body)
        self._finish(slot, header.key, charge, [frame])
        if self._login is not None:
            self._check_login(self._login)

    async def _body(self, request: Request) -> bytes:
        """Return the encoded answer of the request's handler."""
        header = request.header
        if header.key in SASL_APIS:
            login = self._login
            answer = login_not_expected() if login is None else await login.answer(request)
        else:
            handler = BROKER_APIS[header.key].handler
            assert handler is not None
            handled = await handler(self._node, request)
            if isinstance(handled, bytes):
                return handled
            answer = handled
        self._counters.count_errors(header.key, answer)
        return encode(APIS[header.key], header.version, answer)

    def _finish(self, slot: ReplySlot, key: int, charge: int, pieces: list[Piece]) -> None:
        if self._state.closed:
            return
        self.pending -= 1
        self._account.release(charge)
        self._counters.seconds[key].observe(self._loop.time() - slot.arrived_at)
        self._reply(slot, pieces)

    def _check_login(self, login: SaslLogin) -> None:
        """After each SASL step: open the connection, close it, or wait for the next step."""
        if login.failed:
            self._counters.logins[login.mechanism, "failed"] += 1
            self._close(login.failed, "login")
        elif login.principal is not None and not self._state.closed:
            self._counters.logins[login.mechanism, "succeeded"] += 1
            self._client.log_in(login.principal)
            self._login = None
            self._state.move(PhaseInput.LOGIN_SUCCEEDED)
            if self._login_timer is not None:
                self._login_timer.cancel()
            fields = self.log_fields() | {"mechanism": login.mechanism}
            _log.info("%s is %s", self._client.peer, login.principal.name, extra=fields)

    def _login_timed_out(self) -> None:
        self._close(f"no login within {self._limits.setup_seconds:g} s", "login")
