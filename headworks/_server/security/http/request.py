"""The `Authorization` header and the error of authentication; loads no library of signatures."""

from __future__ import annotations

from collections.abc import Iterable


class AuthenticationError(Exception):
    """A request whose sender is not authenticated; `status` is 401, 429, or 503."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def authorization_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return the `Authorization` header; two such headers become one that is never valid."""
    found = [value for name, value in headers if name == b"authorization"]
    return b",".join(found) if found else None
