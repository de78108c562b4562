"""From a request's `Authorization` header to what the one who sent it may do.

Rules:

- `known` answers at once from what was checked before, or not at all; `admit` checks.
- A wrong credential is refused, even where nobody would need one. A missing one makes the
  anonymous principal, who has what the file of grants gives to "anonymous", and reads everything
  if the registry was started so.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import secrets
from collections.abc import Callable, Iterable

from headworks._registry.model.refusals import ServiceError
from headworks._registry.security.keys import KeysUnavailableError
from headworks._registry.security.passwords import PasswordVerifier, TooManyPasswordsError
from headworks._registry.security.permission import Permission
from headworks._registry.security.tokens import TokenError, TokenVerifier
from headworks._server.security import ANONYMOUS, Access, Principal
from headworks.errors import UsageError

__all__ = ["Security", "authorization_of"]

_REALM = 'realm="Headworks"'
_LOG = logging.getLogger(__name__)


def authorization_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The `Authorization` header; two of them become one that nobody could have meant."""
    found = [value for name, value in headers if name == b"authorization"]
    return b",".join(found) if found else None


class Security:
    """Who asks and what they may do; used by one event loop.

    `failed` hears the reason of every credential that was not taken: password, token, busy or
    unavailable.
    """

    def __init__(
        self,
        access: Access,
        passwords: PasswordVerifier | None = None,
        tokens: TokenVerifier | None = None,
        *,
        anonymous_reads: bool = False,
        failed: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self._access = access
        self._passwords = passwords
        self._tokens = tokens
        self._anonymous_reads = anonymous_reads
        self._failed = failed
        self._key = secrets.token_bytes(32)

    @property
    def challenges(self) -> list[str]:
        """What a 401 says about how to authenticate, one `WWW-Authenticate` header each."""
        basic = [f'Basic {_REALM}, charset="UTF-8"'] if self._passwords else []
        bearer = [f"Bearer {_REALM}"] if self._tokens else []
        return basic + bearer

    def known(self, authorization: bytes | None) -> Permission | None:
        """What who sends this header may do, if that is known without any work.

        None also if a file cannot be read: `admit` meets the same trouble, and says so.
        """
        try:
            principal = self._identified(authorization)
            return None if principal is None else self._permission(principal)
        except UsageError:
            return None

    async def admit(self, authorization: bytes | None) -> Permission:
        """What who sends this header may do; ServiceError 401, 429 or 503 if that is nobody."""
        try:
            principal = self._identified(authorization)
            if principal is None and authorization is not None:
                principal = await self._check(authorization)
            return self._permission(principal or ANONYMOUS)
        except UsageError as error:
            _LOG.error("nobody is admitted: %s", error)
            raise self._refusal("unavailable", 503, "who may be admitted is unknown") from None

    def close(self) -> None:
        """End what runs in the background."""
        if self._passwords:
            self._passwords.close()

    def _identified(self, authorization: bytes | None) -> Principal | None:
        if authorization is None:
            return ANONYMOUS
        mark = self._mark(authorization)
        found = self._passwords.known(mark) if self._passwords else None
        if found is None and self._tokens:
            found = self._tokens.known(mark)
        return found

    def _permission(self, principal: Principal) -> Permission:
        return Permission(principal, self._access.grants, self._anonymous_reads)

    async def _check(self, authorization: bytes) -> Principal:
        mark = self._mark(authorization)
        scheme, _, value = authorization.decode("latin-1").partition(" ")
        if scheme.lower() == "basic" and self._passwords:
            return await self._check_password(self._passwords, mark, value.strip())
        if scheme.lower() == "bearer" and self._tokens:
            return await self._check_token(self._tokens, mark, value.strip())
        takes = " or ".join(one.partition(" ")[0] for one in self.challenges) or "no credentials"
        raise self._refusal("scheme", 401, f"Unauthorized: this registry takes {takes}")

    async def _check_password(
        self, passwords: PasswordVerifier, mark: bytes, value: str
    ) -> Principal:
        try:
            name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except ValueError:
            name = colon = password = ""
        try:
            found = await passwords.check(mark, name, password) if colon else None
        except TooManyPasswordsError:
            raise self._refusal(
                "busy", 429, "too many passwords wait to be checked: try again in a second"
            ) from None
        if found is None:
            raise self._refusal(
                "password", 401, "Unauthorized: the user name or the password is wrong"
            )
        return found

    async def _check_token(self, tokens: TokenVerifier, mark: bytes, token: str) -> Principal:
        try:
            return await tokens.check(mark, token)
        except TokenError as error:
            raise self._refusal(
                "token", 401, f"Unauthorized: the token will not do: {error}"
            ) from (None)
        except KeysUnavailableError:
            raise self._refusal(
                "unavailable", 503, "tokens cannot be checked: their keys are not to be had"
            ) from None

    def _refusal(self, reason: str, status: int, message: str) -> ServiceError:
        self._failed(reason)
        return ServiceError(status, status, message)

    def _mark(self, authorization: bytes) -> bytes:
        return hashlib.blake2b(authorization, key=self._key, digest_size=16).digest()
