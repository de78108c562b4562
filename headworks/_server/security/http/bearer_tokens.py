"""HTTP bearer: signed tokens (JWT), verified with the keys of an identity provider.

Rules:

- Signature, expiry, start, issuer, and audience must all be right, with LEEWAY_SECONDS of clock
  difference. A token without an expiry is refused.
- The algorithm must be one that the key allows. The token's own choice is never trusted.
- A name that has another meaning in a file of grants is refused.
- A valid token is cached until it expires or the keys change. A refused token is not cached.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from headworks._server.security import ANONYMOUS, Principal
from headworks._server.security.http.key_set import KeySet, UnknownKeyError

LEEWAY_SECONDS = 30
_MAX_CACHED_CREDENTIALS = 4096
_MAX_TOKEN_CHARACTERS = 16_384
_MAX_NAME_CHARACTERS = 256
_MAX_GROUPS = 1000
_NOT_A_TOKEN = "it is not a signed token (JWT)"
# Raised by the library for a header or a claim that is nested, infinite, or of a wrong type.
_DECODE_ERRORS = (ValueError, TypeError, OverflowError, RecursionError)
_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (jwt.ExpiredSignatureError, "it has expired"),
    (jwt.ImmatureSignatureError, "it is not valid yet"),
    (jwt.InvalidAudienceError, "it is meant for another audience"),
    (jwt.InvalidIssuerError, "it comes from another issuer"),
    (jwt.InvalidAlgorithmError, "its algorithm is not one that its key allows"),
    (jwt.InvalidSignatureError, "its signature is wrong"),
)


class TokenError(Exception):
    """A refused token; the message gives the reason and may be sent to the caller."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Which tokens are accepted, and which claims name the principal and its groups."""

    issuer: str  # the `iss` that tokens must have
    audience: str  # the `aud` that tokens must have
    principal: str = "sub"  # the claim with the principal's name
    groups: str = "groups"  # the claim with the principal's groups


@dataclass(frozen=True, slots=True)
class _CachedToken:
    principal: Principal
    expires: float  # seconds since 1970
    generation: int  # of the key set that verified it


class TokenVerifier:
    """Verifies tokens; used by one event loop. `clock` returns seconds since 1970."""

    def __init__(
        self, keys: KeySet, rules: TokenRules, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._keys = keys  # the keys of the identity provider
        self._rules = rules
        self._clock = clock
        self._cache: OrderedDict[bytes, _CachedToken] = OrderedDict()  # by hash of the header

    def cached(self, mark: bytes) -> Principal | None:
        """Return the principal of a token that was verified before and is still valid, or None."""
        found = self._cache.get(mark)
        if (
            found is None
            or found.expires <= self._clock()
            or found.generation != self._keys.generation
            or not self._keys.fresh
        ):
            return None
        return found.principal

    async def verify(self, mark: bytes, token: str) -> Principal:
        """Return the principal of a token. Raises TokenError or KeysUnavailableError."""
        if len(token) > _MAX_TOKEN_CHARACTERS:
            raise TokenError("it is too long")
        try:
            name = jwt.get_unverified_header(token).get("kid")
            key = await self._keys.find(name if isinstance(name, str) else None)
            claims = jwt.decode(
                token,
                key.public,
                algorithms=list(key.algorithms),
                issuer=self._rules.issuer,
                audience=self._rules.audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
            )
        except UnknownKeyError:
            raise TokenError("it is signed with a key that the provider does not have") from None
        except jwt.PyJWTError as error:
            raise TokenError(_reason(error)) from None
        except _DECODE_ERRORS:
            raise TokenError(_NOT_A_TOKEN) from None
        principal = self._principal(claims)
        self._store(mark, _CachedToken(principal, float(claims["exp"]), self._keys.generation))
        return principal

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        claim = self._rules.principal
        name = _claim(claims, claim)
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME_CHARACTERS:
            raise TokenError(f"its claim `{claim}` is not a name")
        if not name.isprintable() or name in ("*", ANONYMOUS.name) or name.startswith("group:"):
            raise TokenError(f"its claim `{claim}` is {name!r}, which is not allowed as a name")
        groups = _claim(claims, self._rules.groups)
        if isinstance(groups, str):
            groups = groups.split()
        if not isinstance(groups, list):
            return Principal(name)
        texts = [one for one in groups if isinstance(one, str)]
        return Principal(name, tuple(texts[:_MAX_GROUPS]))

    def _store(self, mark: bytes, token: _CachedToken) -> None:
        self._cache[mark] = token
        self._cache.move_to_end(mark)
        if len(self._cache) > _MAX_CACHED_CREDENTIALS:
            self._cache.popitem(last=False)


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """Return a claim by name, or by a path of names separated by dots (`realm_access.roles`)."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(part)
    return found


def _reason(error: jwt.PyJWTError) -> str:
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"its claim `{error.claim}` is missing"
    return _NOT_A_TOKEN
