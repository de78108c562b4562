"""HTTP bearer: signed tokens (JWT), checked with the keys of an identity provider.

Rules:

- Signature, expiry, start, issuer and audience must all be right (LEEWAY_SECONDS seconds of clock
  difference); a token without an expiry is refused.
- The algorithm is one that the key allows, never merely the one that the token names.
- A name that would mean somebody or something else in a file of grants is refused.
- A right token is remembered until it expires or the keys change; a wrong one is not.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from headworks._registry.security.keys import KeySet, UnknownKeyError
from headworks._server.security import ANONYMOUS, Principal

__all__ = ["LEEWAY_SECONDS", "TokenError", "TokenRules", "TokenVerifier"]

LEEWAY_SECONDS = 30
_MAX_CACHED_CREDENTIALS = 4096
_MAX_TOKEN_CHARACTERS = 16_384
_MAX_NAME_CHARACTERS = 256
_MAX_GROUPS = 1000
_NO_TOKEN = "it is not a signed token (JWT)"
# What the library lets through of a header or a claim that is nested, infinite or of a wrong type.
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
    """A token that admits nobody; its text says why and may be answered."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Whose tokens are taken, for whom, and which claims name the principal and its groups."""

    issuer: str
    audience: str
    principal: str = "sub"
    groups: str = "groups"


@dataclass(frozen=True, slots=True)
class _Known:
    principal: Principal
    expires: float
    generation: int


class TokenVerifier:
    """Checks tokens; used by one event loop."""

    def __init__(
        self, keys: KeySet, rules: TokenRules, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._keys = keys
        self._rules = rules
        self._clock = clock
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    def known(self, mark: bytes) -> Principal | None:
        """Whose token this is, if it was checked before and would still be right."""
        known = self._known.get(mark)
        if (
            known is None
            or known.expires <= self._clock()
            or known.generation != self._keys.generation
            or not self._keys.fresh
        ):
            return None
        return known.principal

    async def check(self, mark: bytes, token: str) -> Principal:
        """Whose token this is. Raises TokenError, or KeysAwayError if that cannot be found out."""
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
            raise TokenError(_NO_TOKEN) from None
        principal = self._principal(claims)
        self._remember(mark, _Known(principal, float(claims["exp"]), self._keys.generation))
        return principal

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        claim = self._rules.principal
        name = _claim(claims, claim)
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME_CHARACTERS:
            raise TokenError(f"its claim `{claim}` is not a name")
        if not name.isprintable() or name in ("*", ANONYMOUS.name) or name.startswith("group:"):
            raise TokenError(f"its claim `{claim}` is {name!r}, which nobody may be called")
        groups = _claim(claims, self._rules.groups)
        if isinstance(groups, str):
            groups = groups.split()
        if not isinstance(groups, list):
            return Principal(name)
        texts = [one for one in groups if isinstance(one, str)]
        return Principal(name, tuple(texts[:_MAX_GROUPS]))

    def _remember(self, mark: bytes, known: _Known) -> None:
        self._known[mark] = known
        self._known.move_to_end(mark)
        if len(self._known) > _MAX_CACHED_CREDENTIALS:
            self._known.popitem(last=False)


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """A claim by name, or by a path of names with dots between (`realm_access.roles`)."""
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
    return _NO_TOKEN
