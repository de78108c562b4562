"""The SASL login of one connection: SaslHandshake, then SaslAuthenticate until it is decided.

Rules: the reply to a wrong password is delayed, which blocks no other client. One thread verifies
passwords, one at a time, beside the event loop. The reason of a failed login is logged only: the
client learns that name and password do not fit. Passwords are never logged.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from headworks._broker.handlers import Request
from headworks._broker.server.sasl import MECHANISMS, LoginError, ScramExchange, read_plain
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.protocol.messages import Fields
from headworks._server.security import Principal, Users
from headworks.errors import UsageError

_FAILED_TEXT = "name and password do not fit"
_MAX_WAITING = 64  # logins; verifying one password takes about 10 ms
_MAX_LOGGED_CHARACTERS = 128  # of a name


class Authenticator:
    """Verifies the logins of a server: its users, and the one thread that checks passwords."""

    def __init__(self, users: Users, failed_login_seconds: float) -> None:
        self.users = users
        self.failed_login_seconds = failed_login_seconds  # before a failed login is answered
        self._waiting = 0  # logins that wait for the thread
        self._checker = ThreadPoolExecutor(1, thread_name_prefix="passwords")

    async def verify(self, name: str, password: str) -> bool:
        """Return whether it is the user's password. LoginError if too many logins wait."""
        if self.users.remembers(name, password):
            return True
        if self._waiting >= _MAX_WAITING:
            raise LoginError("too many logins at once", name)
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._checker, self.users.verify, name, password)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Stop the thread."""
        self._checker.shutdown(cancel_futures=True)


class SaslLogin:
    """The login of one connection; it succeeds or fails once."""

    def __init__(self, authenticator: Authenticator, peer: str) -> None:
        self.principal: Principal | None = None  # set when the login has succeeded
        self.name = ""  # the name that the client claims
        self.mechanism = ""  # set by SaslHandshake
        self.failed = ""  # why the login has failed
        self._authenticator = authenticator
        self._peer = peer
        self._scram: ScramExchange | None = None  # in progress

    async def answer(self, request: Request) -> Fields:
        """Return the reply to a SASL request."""
        if request.header.key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(request.message.mechanism, request.version)
        if not self.mechanism:
            self.failed = "SaslAuthenticate before SaslHandshake"
            return _refused(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes first")
        try:
            reply, name = await self._authenticate(bytes(request.message.auth_bytes))
        except (LoginError, UsageError) as error:
            if isinstance(error, LoginError):
                self.name = error.name[:_MAX_LOGGED_CHARACTERS]
            self.failed = f"login of {self.name!r} by {self.mechanism} failed: {error}"
            await asyncio.sleep(self._authenticator.failed_login_seconds)
            return _refused(ErrorCode.SASL_AUTHENTICATION_FAILED, _FAILED_TEXT)
        if name:
            self.name, self.principal = name, Principal(name)
        return {"error_code": ErrorCode.NONE, "error_message": None, "auth_bytes": reply}

    def _handshake(self, mechanism: str, version: int) -> Fields:
        error = ErrorCode.NONE
        if version == 0:  # tokens would follow without headers; no current client asks for it
            error, self.failed = ErrorCode.UNSUPPORTED_VERSION, "SaslHandshake 0 is not served"
        elif self.mechanism:
            error, self.failed = ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake came twice"
        elif mechanism not in MECHANISMS:
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            self.failed = f"SASL mechanism {mechanism[:_MAX_LOGGED_CHARACTERS]!r} is not served"
        else:
            self.mechanism = mechanism
        return {"error_code": error, "mechanisms": MECHANISMS}

    async def _authenticate(self, token: bytes) -> tuple[bytes, str]:
        """Return the reply, and the user's name once the user is authenticated."""
        if self.mechanism == "PLAIN":
            name, password = read_plain(token)
            if not await self._authenticator.verify(name, password):
                raise LoginError("wrong name or password", name)
            return b"", name
        if self._scram is None:
            self._scram = ScramExchange(self._authenticator.users.secret)
        reply, done = self._scram.step(token)
        return reply, self._scram.name if done else ""


def login_not_expected() -> Fields:
    """Return the reply to SASL if there are no users, or if the login is complete."""
    return {"mechanisms": (), **_refused(ErrorCode.ILLEGAL_SASL_STATE, "there is no login now")}


def _refused(error: ErrorCode, text: str) -> Fields:
    return {"error_code": error, "error_message": text, "auth_bytes": b""}
