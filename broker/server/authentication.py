"""The login of one connection: SaslHandshake, then SaslAuthenticate until it is known who it is.

Rules: a wrong password is answered late, and that blocks nobody; checking a password runs beside
the event loop, one at a time. Why a login failed is logged, and not told: a client learns only
that name and password do not fit. Passwords are never logged.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from headworks._broker.handlers import Request
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.protocol.messages import Fields
from headworks._server.security import Principal, Users
from headworks._server.security.sasl import MECHANISMS, LoginError, ScramExchange, read_plain
from headworks.errors import UsageError

__all__ = ["Authenticator", "SaslLogin", "not_now"]

_TOLD = "name and password do not fit"
_MOST_WAITING = 64  # for a password to be checked, about 10 ms each
_NAMED = 128  # characters of a name in the log


class Authenticator:
    """What all logins of a server share: the users, and the one thread that checks passwords."""

    def __init__(self, users: Users, failed_login_seconds: float) -> None:
        self.users = users
        self.failed_login_seconds = failed_login_seconds
        self._waiting = 0
        self._checker = ThreadPoolExecutor(1, thread_name_prefix="passwords")

    async def verify(self, name: str, password: str) -> bool:
        """Whether it is the user's password."""
        if self.users.remembers(name, password):
            return True
        if self._waiting >= _MOST_WAITING:
            raise LoginError("too many logins at once", name)
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._checker, self.users.verify, name, password)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the thread."""
        self._checker.shutdown(cancel_futures=True)


class SaslLogin:
    """One connection's; `principal` is set when it has succeeded, `failed` when it has failed."""

    def __init__(self, authenticator: Authenticator, peer: str) -> None:
        self.principal: Principal | None = None
        self.name = ""  # who it says it is
        self.mechanism = ""
        self.failed = ""
        self._authenticator = authenticator
        self._peer = peer
        self._scram: ScramExchange | None = None

    async def answer(self, request: Request) -> Fields:
        """The reply to a request of SASL."""
        if request.header.key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(request.message.mechanism, request.version)
        if not self.mechanism:
            self.failed = "SaslAuthenticate before SaslHandshake"
            return _refused(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes first")
        try:
            reply, name = await self._authenticate(bytes(request.message.auth_bytes))
        except (LoginError, UsageError) as error:
            if isinstance(error, LoginError):
                self.name = error.name[:_NAMED]
            self.failed = f"login of {self.name!r} by {self.mechanism} failed: {error}"
            await asyncio.sleep(self._authenticator.failed_login_seconds)
            return _refused(ErrorCode.SASL_AUTHENTICATION_FAILED, _TOLD)
        if name:
            self.name, self.principal = name, Principal(name)
        return {"error_code": ErrorCode.NONE, "error_message": None, "auth_bytes": reply}

    def _handshake(self, mechanism: str, version: int) -> Fields:
        error = ErrorCode.NONE
        if version == 0:  # what follows it would be without headers; no client of today asks so
            error, self.failed = ErrorCode.UNSUPPORTED_VERSION, "SaslHandshake 0 is not served"
        elif self.mechanism:
            error, self.failed = ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake came twice"
        elif mechanism not in MECHANISMS:
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            self.failed = f"SASL mechanism {mechanism[:_NAMED]!r} is not served"
        else:
            self.mechanism = mechanism
        return {"error_code": error, "mechanisms": MECHANISMS}

    async def _authenticate(self, token: bytes) -> tuple[bytes, str]:
        """The answer, and the user's name once that is shown."""
        if self.mechanism == "PLAIN":
            name, password = read_plain(token)
            if not await self._authenticator.verify(name, password):
                raise LoginError("wrong name or password", name)
            return b"", name
        if self._scram is None:
            self._scram = ScramExchange(self._authenticator.users.secret)
        reply, done = self._scram.step(token)
        return reply, self._scram.name if done else ""


def not_now() -> Fields:
    """The answer to SASL where there are no users, or when the login is over."""
    return {"mechanisms": (), **_refused(ErrorCode.ILLEGAL_SASL_STATE, "there is no login now")}


def _refused(error: ErrorCode, text: str) -> Fields:
    return {"error_code": error, "error_message": text, "auth_bytes": b""}
