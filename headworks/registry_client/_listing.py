"""A registry's list of versions, page by page; in a long list, two are requested at a time.

`read_each` lists the versions of a registry that lists none, or not as Confluent's does.

Rules:

- Each page starts with the last version of the previous page. If it does not, a version was
  registered or deleted in between, and the previous page is read again.
- A page may be shorter than requested, so only an empty page is the last one. After a short page,
  the pages that were requested ahead start elsewhere, and are requested again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from types import TracebackType
from typing import Generic, Self, TypeVar
from urllib.parse import quote

from headworks.errors import UnreachableError
from headworks.registry_client._answers import JsonBody

PAGE_VERSIONS = 1000
EVERYWHERE = ":*:"  # the prefix of the subjects of all contexts
_MAX_REREAD_PAGES = 50
# The registry makes one page while this process decodes another one. More gain nothing.
_AHEAD = 2

Version = TypeVar("Version")
# From the position of the first version to the page from there.
PageReader = Callable[[int], list[Version]]


def read_all(read: PageReader[Version], url: str, *, limit: int | None = None) -> list[Version]:
    """Return the versions of all pages; with `limit`, end early with at least that many.

    Raises UnreachableError, which names `url`, if the list changes faster than it can be read.
    """
    found: list[Version] = []
    with _Pages(read, ahead=0 if limit is not None else _AHEAD) as pages:
        for _ in range(_MAX_REREAD_PAGES):
            while True:
                first = max(0, len(found) - 1)
                page = pages.at(first)
                if page in (found, found[-1:]):  # the whole list again: this registry has no pages
                    return found
                if found and (not page or page[0] != found[-1]):
                    break
                found[first:] = page
                if limit is not None and len(found) >= limit:
                    return found
                if first and len(page) == PAGE_VERSIONS:
                    pages.request_next(first)
            del found[-PAGE_VERSIONS:]
    raise UnreachableError(
        f"the schemas at {url} change faster than they can be listed",
        fix="run this again when less is registered or deleted there",
    )


def page_paths(
    prefix: str, *, latest_only: bool, deleted: bool, aliases: bool
) -> Callable[[int], str]:
    """Return the function from the position of a page to the path of its request."""
    query = f"subjectPrefix={quote(prefix, safe='')}&latestOnly={str(latest_only).lower()}"
    query += "&deleted=true" if deleted else ""
    query += "&aliases=true" if aliases else ""
    return lambda first: f"/schemas?{query}&offset={first}&limit={PAGE_VERSIONS}"


def is_complete(versions: Sequence[JsonBody]) -> bool:
    """Return whether each version of a list says what it is a version of, as Confluent's do."""
    return all({"subject", "version", "id", "schema"} <= one.keys() for one in versions)


def read_each(
    ask: Callable[[str, str], JsonBody | None],
    prefix: str,
    *,
    latest_only: bool,
    deleted: bool,
    limit: int | None,
) -> list[JsonBody]:
    """Return the versions of all subjects with a prefix, by one request for each.

    `ask` returns None for what was deleted in between.
    """
    versions = _each(ask, prefix, latest_only=latest_only, deleted=deleted)
    return list(islice((one for one in versions if one is not None), limit))


def _each(
    ask: Callable[[str, str], JsonBody | None], prefix: str, *, latest_only: bool, deleted: bool
) -> Iterator[JsonBody | None]:
    also = "deleted=true" if deleted else ""
    names = ask("GET", f"/subjects?subjectPrefix={quote(prefix, safe='')}&{also}".rstrip("&"))
    for name in sorted(map(str, names or ())):
        if prefix != EVERYWHERE and not name.startswith(prefix):
            continue  # this registry does not know the parameter
        subject = f"/subjects/{quote(name, safe='')}/versions"
        numbers = sorted(ask("GET", f"{subject}?{also}".rstrip("?")) or ())
        for number in numbers[-1:] if latest_only else numbers:
            yield ask("GET", f"{subject}/{number}?{also}".rstrip("?"))


class _Pages(Generic[Version]):
    """Reads pages, and those that probably follow, in threads of its own."""

    def __init__(self, read: PageReader[Version], *, ahead: int) -> None:
        self._read = read
        self._ahead = ahead
        self._asked: dict[int, Future[list[Version]]] = {}  # by the position of the first version
        self._threads = ThreadPoolExecutor(max(1, ahead), "registry-pages")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown(cancel_futures=True)

    def at(self, first: int) -> list[Version]:
        """Return the page from that position."""
        if (asked := self._asked.pop(first, None)) is None:
            self._asked.clear()  # the list is not what it was, or its pages are short
            return self._read(first)
        return asked.result()

    def request_next(self, first: int) -> None:
        """Request the pages that follow the full one from that position."""
        for number in range(1, self._ahead + 1):
            at = first + number * (PAGE_VERSIONS - 1)
            if at not in self._asked:
                self._asked[at] = self._threads.submit(self._read, at)
