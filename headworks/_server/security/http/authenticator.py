"""From a request's `Authorization` header to the permissions of its sender.

Rules:

- `cached` answers from credentials that were verified before, and does no work. `authenticate`
  verifies.
- Wrong credentials are refused, even if the request needs none. A request without credentials has
  the principal `anonymous`: it may do what the grants give to "anonymous", and read everything if
  the server was started with anonymous reading.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import secrets
from collections.abc import Callable

from headworks._server.security import ANONYMOUS, Access, Principal
from headworks._server.security.http.basic_passwords import PasswordVerifier, TooManyPasswordsError
from headworks._server.security.http.bearer_tokens import TokenError, TokenVerifier
from headworks._server.security.http.key_set import KeysUnavailableError
from headworks._server.security.http.permissions import PrincipalPermissions
from headworks._server.security.http.request import AuthenticationError
from headworks.errors import UsageError

_REALM = 'realm="Headworks"'
_LOG = logging.getLogger(__name__)


class HttpAuthenticator:
    """Authenticates requests; used by one event loop.

    `count_failure` receives the reason of each refusal: scheme, password, token, busy, or
    unavailable.
    """

    def __init__(
        self,
        access: Access,
        passwords: PasswordVerifier | None = None,
        tokens: TokenVerifier | None = None,
        *,
        anonymous_reads: bool = False,
        count_failure: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self._access = access  # the file of grants
        self._passwords = passwords  # None: HTTP basic is refused
        self._tokens = tokens  # None: HTTP bearer is refused
        self._anonymous_reads = anonymous_reads
        self._count_failure = count_failure
        self._key = secrets.token_bytes(32)  # of this process; keys the hashes of credentials

    @property
    def challenges(self) -> list[str]:
        """The values of the `WWW-Authenticate` headers of a 401."""
        basic = [f'Basic {_REALM}, charset="UTF-8"'] if self._passwords else []
        bearer = [f"Bearer {_REALM}"] if self._tokens else []
        return basic + bearer

    def cached(self, authorization: bytes | None) -> PrincipalPermissions | None:
        """Return the sender's permissions if they are known without any work, otherwise None.

        None also if a file cannot be read: `authenticate` then fails in the same way, and logs it.
        """
        try:
            principal = self._cached_principal(authorization)
            return None if principal is None else self._permissions(principal)
        except UsageError:
            return None

    async def authenticate(self, authorization: bytes | None) -> PrincipalPermissions:
        """Return the sender's permissions; AuthenticationError if the sender is refused."""
        try:
            principal = self._cached_principal(authorization)
            if principal is None and authorization is not None:
                principal = await self._verify(authorization)
            return self._permissions(principal or ANONYMOUS)
        except UsageError as error:
            _LOG.error("all requests are refused: %s", error)
            raise self._refusal("unavailable", 503, "users and grants cannot be read") from None

    def close(self) -> None:
        """End the threads that verify passwords."""
        if self._passwords:
            self._passwords.close()

    def _cached_principal(self, authorization: bytes | None) -> Principal | None:
        if authorization is None:
            return ANONYMOUS
        mark = self._mark(authorization)
        found = self._passwords.cached(mark) if self._passwords else None
        if found is None and self._tokens:
            found = self._tokens.cached(mark)
        return found

    def _permissions(self, principal: Principal) -> PrincipalPermissions:
        return PrincipalPermissions(principal, self._access.grants, self._anonymous_reads)

    async def _verify(self, authorization: bytes) -> Principal:
        mark = self._mark(authorization)
        scheme, _, value = authorization.decode("latin-1").partition(" ")
        if scheme.lower() == "basic" and self._passwords:
            return await self._verify_password(self._passwords, mark, value.strip())
        if scheme.lower() == "bearer" and self._tokens:
            return await self._verify_token(self._tokens, mark, value.strip())
        accepted = " or ".join(one.partition(" ")[0] for one in self.challenges)
        raise self._refusal(
            "scheme", 401, f"Unauthorized: this server accepts {accepted or 'no credentials'}"
        )

    async def _verify_password(
        self, passwords: PasswordVerifier, mark: bytes, value: str
    ) -> Principal:
        try:
            name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except ValueError:
            name = colon = password = ""
        try:
            found = await passwords.verify(mark, name, password) if colon else None
        except TooManyPasswordsError:
            raise self._refusal(
                "busy", 429, "too many passwords are waiting to be verified: retry in a second"
            ) from None
        if found is None:
            raise self._refusal(
                "password", 401, "Unauthorized: the user name or the password is wrong"
            )
        return found

    async def _verify_token(self, tokens: TokenVerifier, mark: bytes, token: str) -> Principal:
        try:
            return await tokens.verify(mark, token)
        except TokenError as error:
            raise self._refusal(
                "token", 401, f"Unauthorized: the token is refused: {error}"
            ) from None
        except KeysUnavailableError:
            raise self._refusal(
                "unavailable", 503, "tokens cannot be verified: the keys are not available"
            ) from None

    def _refusal(self, reason: str, status: int, message: str) -> AuthenticationError:
        self._count_failure(reason)
        return AuthenticationError(status, message)

    def _mark(self, authorization: bytes) -> bytes:
        """Return the keyed hash by which credentials are cached."""
        return hashlib.blake2b(authorization, key=self._key, digest_size=16).digest()
