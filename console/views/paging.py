"""A part of a list: what is looked for, in which order, and which page of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["PAGE", "Part", "Wanted", "part_of"]

T = TypeVar("T")
PAGE = 50


@dataclass(frozen=True, slots=True)
class Wanted:
    """The words looked for, the page (from 1) and the order."""

    q: str = ""
    page: int = 1
    sort: str = ""


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """One page of a list: `total` counts what matches, on all pages."""

    rows: tuple[T, ...]
    total: int
    page: int
    pages: int
    q: str
    sort: str


def part_of(
    rows: Iterable[T],
    wanted: Wanted,
    text: Callable[[T], str],
    order: Callable[[T], object] | None = None,
) -> Part[T]:
    """The page that is wanted of the rows whose text holds every word, in the order given."""
    words = wanted.q.lower().split()
    found = [row for row in rows if not words or _holds(text(row).lower(), words)]
    if order is not None:
        found.sort(key=order)  # type: ignore[arg-type]  # keys of one list compare
    pages = max(1, -(-len(found) // PAGE))
    page = min(wanted.page, pages)
    shown = tuple(found[(page - 1) * PAGE : page * PAGE])
    return Part(shown, len(found), page, pages, wanted.q, wanted.sort)


def _holds(text: str, words: list[str]) -> bool:
    return all(word in text for word in words)
