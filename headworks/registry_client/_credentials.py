"""The credentials of a registry's client: a user with a password, a token, or none.

Rules: arguments of the client take precedence over the URL, and the URL over the settings
`username` and `password`. Credentials are never part of a message, and `repr` hides them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote

from headworks._settings import resolve_optional
from headworks.errors import UsageError

Token = str | Callable[[], str]
_USER_INFO = re.compile(r"^(.*?//)?.*@", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user (`username` and `password`), or a `token`; or neither."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: Token | None = field(default=None, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request; a token that is a function is called for every request."""
        if self.token is not None:
            token = self.token if isinstance(self.token, str) else self.token()
            return {"Authorization": f"Bearer {token}"}
        if self.username is None:
            return {}
        pair = f"{self.username}:{self.password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}

    @property
    def fix(self) -> str:
        """The fix for a registry that refuses them."""
        if self.token is not None:
            return "get a new token: this one has expired or has another audience"
        if self.username is not None:
            return (
                f"check the password of {self.username!r}; `headworks user set {self.username}` "
                "with the registry's file of users gives a new one"
            )
        return (
            "authenticate: set username and password (HEADWORKS_USERNAME, "
            "HEADWORKS_PASSWORD), or http://USER:PASSWORD@HOST as the registry's address"
        )


def choose(
    user_info: str | None,
    username: str | None = None,
    password: str | None = None,
    token: Token | None = None,
) -> Credentials:
    """Return the credentials to use; `user_info` is the URL's, percent-encoded.

    Raises UsageError for a user without a password, or for both a user and a token.
    """
    if token is not None:
        if username is not None:
            raise UsageError("a user and a token are given", fix="give one of them")
        return Credentials(token=token)
    if username is None and user_info:
        name, _, word = user_info.partition(":")
        username, password = unquote(name), unquote(word) or password
    if username is None:
        username = resolve_optional("username")
    if not username:
        return Credentials()
    if ":" in username:
        raise UsageError(f"{username!r} cannot be the name of a user: it has a colon")
    secret = password or resolve_optional("password")
    if not secret:
        raise UsageError(
            f"user {username!r} has no password", fix="set password, or $HEADWORKS_PASSWORD"
        )
    return Credentials(username, secret)


def redacted(url: str) -> str:
    """Return a URL without its credentials."""
    return _USER_INFO.sub(r"\1***@", url)
