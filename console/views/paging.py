"""One page of a list: the search, the order, and the page number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
PAGE_ROWS = 50


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The words to search for, the page (from 1), and the order."""

    q: str = ""
    page: int = 1
    sort: str = ""


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """One page of a list: `total` counts the matches on all pages."""

    rows: tuple[T, ...]
    total: int
    page: int
    pages: int
    q: str
    sort: str


def list_page(
    rows: Iterable[T],
    query: ListQuery,
    text: Callable[[T], str],
    order: Callable[[T], object] | None = None,
) -> ListPage[T]:
    """Return the requested page of the rows whose text contains every word."""
    words = query.q.lower().split()
    found = [row for row in rows if not words or _holds(text(row).lower(), words)]
    if order is not None:
        found.sort(key=order)  # type: ignore[arg-type]  # keys of one list compare
    pages = max(1, -(-len(found) // PAGE_ROWS))
    page = min(query.page, pages)
    shown = tuple(found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS])
    return ListPage(shown, len(found), page, pages, query.q, query.sort)


def _holds(text: str, words: list[str]) -> bool:
    return all(word in text for word in words)
