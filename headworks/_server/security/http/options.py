"""The security options of a registry or a console, and the authenticator that they configure.

Rules:

- Incomplete options are refused. Tokens without an issuer and an audience would admit every token
  of the provider, whatever its purpose.
- Without users, tokens, grants, or anonymous reading the server is open: everyone may do
  everything. It then listens on loopback only (`exposure`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headworks._server.security import Access, Users
from headworks._server.security.http.web_pages import WebPageRules
from headworks.errors import UsageError

if TYPE_CHECKING:
    from headworks._server.security.http.authenticator import HttpAuthenticator
    from headworks._server.security.http.bearer_tokens import TokenRules


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """How a server authenticates requests, and which requests need no authentication."""

    users: Path | None = None  # the file of users, for HTTP basic
    access: Path | None = None  # the file of grants
    jwks: str | None = None  # URL of the key set that signs tokens
    jwks_ca: Path | None = None  # CA certificates of the server behind that URL, PEM
    issuer: str | None = None  # the `iss` that tokens must have
    audience: str | None = None  # the `aud` that tokens must have
    jwt_principal: str = "sub"  # the claim with the principal's name
    jwt_groups: str = "groups"  # the claim with the principal's groups
    anonymous_reads: bool = False  # everyone may read
    insecure: bool = False  # the operator trusts the network
    host_names: frozenset[str] = frozenset()  # further names under which clients reach the server

    @property
    def authenticates(self) -> bool:
        """Whether clients can authenticate."""
        return self.users is not None or self.jwks is not None

    @property
    def is_open(self) -> bool:
        """Whether everyone may do everything."""
        return not (self.authenticates or self.access is not None or self.anonymous_reads)

    @property
    def web_pages(self) -> WebPageRules:
        """The rules for requests of web pages; a given name excludes all others."""
        any_host = (self.authenticates or self.insecure) and not self.host_names
        return WebPageRules(any_host, self.host_names)


def open_authenticator(
    options: SecurityOptions, count_failure: Callable[[str], None]
) -> HttpAuthenticator | None:
    """Return the authenticator, or None if the server is open.

    Raises UsageError if options are missing or a file cannot be read.
    """
    rules = _token_rules(options)
    if options.is_open:
        return None
    # The libraries that verify signatures load slowly, and an open server needs none of them.
    from headworks._server.security.http.authenticator import HttpAuthenticator
    from headworks._server.security.http.basic_passwords import PasswordVerifier
    from headworks._server.security.http.bearer_tokens import TokenVerifier
    from headworks._server.security.http.key_set import KeySet

    tokens = None
    if options.jwks is not None and rules is not None:
        keys = KeySet(options.jwks, ca=options.jwks_ca, insecure=options.insecure)
        tokens = TokenVerifier(keys, rules)
    access = Access.load(options.access)
    passwords = PasswordVerifier(Users(options.users)) if options.users is not None else None
    return HttpAuthenticator(
        access,
        passwords,
        tokens,
        anonymous_reads=options.anonymous_reads,
        count_failure=count_failure,
    )


def _token_rules(options: SecurityOptions) -> TokenRules | None:
    issuer, audience = options.issuer, options.audience
    if options.jwks is None:
        if issuer or audience or options.jwks_ca:
            raise UsageError(
                "--issuer, --audience, and --jwks-ca configure tokens, and --jwks is missing",
                fix="pass --jwks URL",
            )
        return None
    if not issuer or not audience:
        raise UsageError(
            "--jwks needs --issuer and --audience: without them the server would accept every token"
            " of that provider, whatever its purpose",
            fix="pass the `iss` and the `aud` that tokens for this server have",
        )
    from headworks._server.security.http.bearer_tokens import TokenRules

    return TokenRules(issuer, audience, options.jwt_principal, options.jwt_groups)
