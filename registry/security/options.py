"""How a registry is guarded, as its operator says it; and from that, its `Security`.

Rules:

- A half of something is refused: tokens without an issuer and an audience would admit every
  token of the provider, whatever it was made for.
- Anonymous requests are nothing by themselves: without users, tokens, grants or anonymous reading
  the registry is open, and `server` lets it listen on loopback only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headworks._server.security import Access, Users
from headworks.errors import UsageError

if TYPE_CHECKING:
    from headworks._registry.security.security import Security
    from headworks._registry.security.tokens import TokenRules

__all__ = ["SecurityOptions", "open_security"]


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """Files of users and grants, where tokens come from, and whether all may read."""

    users: Path | None = None
    access: Path | None = None
    jwks: str | None = None
    jwks_ca: Path | None = None
    issuer: str | None = None
    audience: str | None = None
    jwt_principal: str = "sub"
    jwt_groups: str = "groups"
    anonymous_reads: bool = False
    insecure: bool = False

    @property
    def authenticates(self) -> bool:
        """Whether there is a way to say who one is."""
        return self.users is not None or self.jwks is not None

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything."""
        return not (self.authenticates or self.access is not None or self.anonymous_reads)


def open_security(guarding: SecurityOptions, failed: Callable[[str], None]) -> Security | None:
    """What guards the registry, or None if it is open; UsageError for options that do not fit."""
    rules = _token_rules(guarding)
    if guarding.is_open:
        return None
    # What checks signatures takes long to load, and an open server needs none of it.
    from headworks._registry.security.keys import KeySet
    from headworks._registry.security.passwords import PasswordVerifier
    from headworks._registry.security.security import Security
    from headworks._registry.security.tokens import TokenVerifier

    tokens = None
    if guarding.jwks is not None and rules is not None:
        keys = KeySet(guarding.jwks, ca=guarding.jwks_ca, insecure=guarding.insecure)
        tokens = TokenVerifier(keys, rules)
    access = Access.load(guarding.access)
    passwords = PasswordVerifier(Users(guarding.users)) if guarding.users is not None else None
    return Security(
        access, passwords, tokens, anonymous_reads=guarding.anonymous_reads, failed=failed
    )


def _token_rules(guarding: SecurityOptions) -> TokenRules | None:
    issuer, audience = guarding.issuer, guarding.audience
    if guarding.jwks is None:
        if issuer or audience or guarding.jwks_ca:
            raise UsageError(
                "--issuer, --audience and --jwks-ca are about tokens, and no keys are given",
                fix="give --jwks URL too",
            )
        return None
    if not issuer or not audience:
        raise UsageError(
            "--jwks needs --issuer and --audience: without them every token of that provider would"
            " be admitted, whatever it was made for",
            fix="give the `iss` and the `aud` that tokens for this registry have",
        )
    from headworks._registry.security.tokens import TokenRules

    return TokenRules(issuer, audience, guarding.jwt_principal, guarding.jwt_groups)
