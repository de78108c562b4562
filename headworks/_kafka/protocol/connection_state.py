"""The server's half of a Kafka connection without I/O: bytes in, events out.

`ConnectionState` splits the received bytes into requests, keeps clients that have not logged in
out, limits sizes, and says when no more requests may be taken. The caller owns the socket, the
buffer, and the handlers.

    phase       input             next phase
    LOGIN       LOGIN_SUCCEEDED   OPEN
    LOGIN       STOP              DRAINING
    LOGIN       CLOSE             CLOSED
    OPEN        STOP              DRAINING
    OPEN        CLOSE             CLOSED
    DRAINING    LOGIN_SUCCEEDED   DRAINING
    DRAINING    CLOSE             CLOSED

A connection begins in LOGIN if the server has users, and otherwise in OPEN. In these two phases the
server receives bytes and takes requests, unless a `Hold` suspends that. In DRAINING it only answers
the requests that it has taken.

Rules:

- An error is a value (`ProtocolError`), never an exception. After one, the caller closes.
- The pieces in which bytes arrive make no difference to the events.
- In LOGIN only ApiVersions and SASL are taken, one request at a time, and only small ones.
- Nothing here trusts a length, and nothing is copied: an event points into the caller's buffer.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from headworks._kafka.protocol.apis import APIS, BEFORE_LOGIN, ApiKey
from headworks._kafka.protocol.frame import MalformedError, RequestHeader, parse_header

PREFIX_BYTES = 4  # the length before a request
_MIN_REQUEST_BYTES = 8  # API key, version, correlation id
_LENGTH = struct.Struct(">i")
_PRODUCE, _API_VERSIONS = int(ApiKey.PRODUCE), int(ApiKey.API_VERSIONS)
_PRODUCE_VERSIONS = APIS[ApiKey.PRODUCE].maximum
_TLS_HELLO = b"\x16\x03"
_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI")


class Phase(enum.Enum):
    """How far a connection has come."""

    LOGIN = "login"
    OPEN = "open"
    DRAINING = "draining"
    CLOSED = "closed"


_LOGIN = Phase.LOGIN


class PhaseInput(enum.Enum):
    """The inputs that move a connection from one phase to the next."""

    LOGIN_SUCCEEDED = "login succeeded"
    STOP = "stop"
    CLOSE = "close"


TRANSITIONS: Mapping[tuple[Phase, PhaseInput], Phase] = {
    (Phase.LOGIN, PhaseInput.LOGIN_SUCCEEDED): Phase.OPEN,
    (Phase.LOGIN, PhaseInput.STOP): Phase.DRAINING,
    (Phase.LOGIN, PhaseInput.CLOSE): Phase.CLOSED,
    (Phase.OPEN, PhaseInput.STOP): Phase.DRAINING,
    (Phase.OPEN, PhaseInput.CLOSE): Phase.CLOSED,
    (Phase.DRAINING, PhaseInput.LOGIN_SUCCEEDED): Phase.DRAINING,
    (Phase.DRAINING, PhaseInput.CLOSE): Phase.CLOSED,
}


class Hold(enum.Enum):
    """Why the server receives nothing for now; several reasons may apply together."""

    REPLIES = "too many replies are waiting, or the client does not read them"
    MEMORY = "there is no memory for the request that has begun"
    VALIDATION = "the next request waits until its records are validated"


class NeedData(NamedTuple):
    """An event: the next request has not arrived. With its length it takes `size` bytes.

    The size is 0 while the length has not arrived either.
    """

    size: int


class ProtocolError(NamedTuple):
    """An event: the client broke the protocol. `key` is the API of the request, if it is served."""

    message: str
    key: int | None = None


Event = RequestHeader | NeedData | ProtocolError
NO_DATA = NeedData(0)


class RequestLimits(Protocol):
    """The limits that apply to the requests of one connection."""

    @property
    def max_request_bytes(self) -> int:
        """Size of a request."""

    @property
    def max_other_request_bytes(self) -> int:
        """Size of a request that is not Produce."""

    @property
    def max_login_bytes(self) -> int:
        """Size of a request before the login."""

    @property
    def max_in_flight(self) -> int:
        """Requests without a complete reply."""

    @property
    def max_pending(self) -> int:
        """Requests other than Produce that are being handled."""

    @property
    def max_unsent_bytes(self) -> int:
        """Bytes of replies that the client has not read."""


class ConnectionState:
    """The phase of one connection and the holds on it; see the module for the transitions."""

    __slots__ = (
        "_limits",
        "closed",
        "holds",
        "max_in_flight",
        "max_request_bytes",
        "phase",
        "receives",
        "takes_requests",
    )

    def __init__(self, limits: RequestLimits, *, login_required: bool) -> None:
        self._limits = limits  # of a logged-in client
        self.phase = Phase.LOGIN if login_required else Phase.OPEN  # see the table above
        self.holds: set[Hold] = set()  # the reasons for which it takes no requests now
        # The limits of the present phase
        self.max_in_flight = 1 if login_required else limits.max_in_flight
        # The longest request that is taken
        self.max_request_bytes = (
            limits.max_login_bytes if login_required else limits.max_request_bytes
        )
        # These three follow from phase and holds
        self.closed = False  # whether the phase is CLOSED
        self.receives = True  # whether more bytes may be received
        self.takes_requests = True  # whether received requests may be taken, within the limits

    def move(self, step: PhaseInput) -> None:
        """Enter the next phase. KeyError if the present phase does not allow the step."""
        self.phase = TRANSITIONS[self.phase, step]
        if step is PhaseInput.LOGIN_SUCCEEDED:
            self.max_in_flight = self._limits.max_in_flight
            self.max_request_bytes = self._limits.max_request_bytes
        self._update()

    def hold(self, reason: Hold) -> None:
        """Receive nothing for this reason. Of the three, only `VALIDATION` also takes nothing."""
        self.holds.add(reason)
        self._update()

    def release(self, reason: Hold) -> None:
        """End a hold; another reason may remain."""
        self.holds.discard(reason)
        self._update()

    def hold_for_replies(self, waiting: int, pending: int, unsent: int) -> bool:
        """Return whether too many replies are due, and hold the connection if so.

        `waiting` are requests without a reply, `pending` of these are being handled and are not
        Produce, and `unsent` are bytes of replies.
        """
        limits = self._limits
        if (
            waiting < self.max_in_flight
            and pending < limits.max_pending
            and unsent <= limits.max_unsent_bytes
        ):
            return False
        self.hold(Hold.REPLIES)
        return True

    def release_replies(self, waiting: int, pending: int, unsent: int) -> bool:
        """End the hold for replies, and return True, if half of the limits is free again."""
        limits = self._limits
        if (
            waiting > self.max_in_flight // 2
            or pending > limits.max_pending // 2
            or unsent > limits.max_unsent_bytes
        ):
            return False
        self.release(Hold.REPLIES)
        return True

    def next_event(self, buffer: bytearray, start: int, end: int) -> Event:
        """Return what the bytes at `start`..`end` of the buffer begin with.

        The caller goes on behind the request, at `RequestHeader.end`.
        """
        if end - start < PREFIX_BYTES:
            return NO_DATA
        (size,) = _LENGTH.unpack_from(buffer, start)
        if not _MIN_REQUEST_BYTES <= size <= self.max_request_bytes:
            return ProtocolError(self._wrong_size(buffer, start, size))
        position = start + PREFIX_BYTES
        stop = position + size
        if stop > end:
            return NeedData(PREFIX_BYTES + size)
        try:
            header = parse_header(buffer, position, stop)
        except MalformedError as error:
            return ProtocolError(str(error))
        if header.key == _PRODUCE and self.phase is not _LOGIN:
            if 0 <= header.version <= _PRODUCE_VERSIONS:
                return header
            return ProtocolError(f"API produce version {header.version} is not served")
        return self._refusal(header, size) or header

    def _refusal(self, header: RequestHeader, size: int) -> ProtocolError | None:
        """Return why a request may not be taken, by its API, version, and size."""
        key, version = header.key, header.version
        api = APIS.get(key)
        if api is None:
            return ProtocolError(f"API {key} is not served")
        if self.phase is _LOGIN and key not in BEFORE_LOGIN:
            message = f"API {api.name} before login: a client without SASL?"
            return ProtocolError(message, key)
        if key == _API_VERSIONS:  # every version is answered
            return None
        if not api.serves(version) and (key, version) != (ApiKey.SASL_HANDSHAKE, 0):
            return ProtocolError(f"API {api.name} version {version} is not served", key)
        if size > self._limits.max_other_request_bytes:
            limit = self._limits.max_other_request_bytes
            message = f"{api.name} of {size} bytes: at most {limit} are taken"
            return ProtocolError(message, key)
        return None

    def _wrong_size(self, buffer: bytearray, start: int, size: int) -> str:
        """Describe a length that no request can have; guess what the client speaks."""
        hint = ""
        if buffer.startswith(_TLS_HELLO, start):
            hint = "; a TLS client, and this is not TLS?"
        elif buffer.startswith(_HTTP, start):
            hint = "; it speaks HTTP"
        limits = f"{_MIN_REQUEST_BYTES}..{self.max_request_bytes}"
        return f"a request of {size} bytes is not within {limits}{hint}"

    def _update(self) -> None:
        active = self.phase is Phase.OPEN or self.phase is Phase.LOGIN
        self.closed = self.phase is Phase.CLOSED
        self.receives = active and not self.holds
        self.takes_requests = active and Hold.VALIDATION not in self.holds
