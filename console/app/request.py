"""A request for a page: the principal, the names in the path, and the parameters.

Rules: names in a path are percent-encoded, and decoded here, once. An invalid parameter is a
UsageError, shown on the page, and never an internal error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request

from headworks._console.app.visibility import Visibility
from headworks._console.sources import Sources
from headworks._console.views.paging import ListQuery
from headworks.errors import HeadworksError, UsageError

_MAX_PAGES = 100_000
_MAX_FORM_BYTES = 4_000_000


class PageNotFoundError(HeadworksError):
    """The requested thing does not exist or is not visible; the reader cannot tell which."""


class ActionForbiddenError(HeadworksError):
    """The principal may see a thing, and may not change it."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One request for a page."""

    http: Request
    sources: Sources
    visibility: Visibility
    form: Mapping[str, str] = field(default_factory=dict)

    def form_value(self, key: str) -> str:
        """Return a field of the posted form, or else the query parameter of that name."""
        return self.form.get(key) or self.http.query_params.get(key, "")

    def name(self, key: str) -> str:
        """Return a name in the path."""
        try:
            return unquote(self.http.path_params[key], errors="strict")
        except UnicodeDecodeError:
            raise PageNotFoundError(f"the {key} in the address is not UTF-8") from None

    def text(self, key: str, default: str = "") -> str:
        """Return a parameter, stripped."""
        return self.http.query_params.get(key, default).strip()

    def number(self, key: str, default: int, *, minimum: int = 0, maximum: int = 2**63 - 1) -> int:
        """Return a parameter that is a whole number."""
        found = self.optional_number(key, minimum=minimum, maximum=maximum)
        return default if found is None else found

    def optional_number(
        self, key: str, *, minimum: int = 0, maximum: int = 2**63 - 1
    ) -> int | None:
        """Return a parameter that is a whole number, or None if it is absent."""
        given = self.text(key)
        if not given:
            return None
        return _whole(key, given, minimum, maximum)

    def path_number(self, key: str) -> int:
        """Return a whole number in the path."""
        return _whole(key, self.http.path_params[key], 0, 2**63 - 1)

    def list_query(self) -> ListQuery:
        """Return the requested search, page, and order of a list."""
        return ListQuery(
            self.text("q"), self.number("page", 1, minimum=1, maximum=_MAX_PAGES), self.text("sort")
        )


def _whole(key: str, given: str, minimum: int, maximum: int) -> int:
    if given.isascii() and given.isdigit() and minimum <= int(given[:20]) <= maximum:
        return int(given[:20])
    raise UsageError(
        f"{key} must be a whole number from {minimum} to {maximum}, not {given[:80]!r}"
    )


async def read_form(request: Request) -> dict[str, str]:
    """Return the form in a request's body. Raises UsageError if it is too long or malformed."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > _MAX_FORM_BYTES:
            raise UsageError(f"the form is longer than {_MAX_FORM_BYTES:,} bytes")
    try:
        return dict(parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise UsageError("the body of the request is not a form of this console") from None
