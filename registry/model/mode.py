"""Modes: the changes that a subject accepts, by its own mode, its context's, or the global one."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from headworks._registry.model import refusals
from headworks._subject import Subject


class Mode(StrEnum):
    """READWRITE is ordinary; IMPORT takes the caller's ids; the others refuse every change."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    FORWARD = "FORWARD"


_READ_ONLY = (Mode.READONLY, Mode.READONLY_OVERRIDE, Mode.FORWARD)


def read_mode(name: object, *, everywhere: bool) -> Mode:
    """The mode of that name; FORWARD is one only `everywhere`."""
    try:
        mode = Mode(str(name).upper())
    except ValueError:
        raise refusals.invalid_mode(name) from None
    if mode is Mode.FORWARD and not everywhere:
        raise refusals.invalid_mode(name)
    return mode


def in_force(of_all: Collection[str], *scopes: str) -> Mode:
    """Return the first scope's mode, as the nearest; READONLY_OVERRIDE for all wins over it."""
    if Mode.READONLY_OVERRIDE in of_all:
        return Mode.READONLY_OVERRIDE
    return Mode(scopes[0]) if scopes else Mode.READWRITE


def must_accept_registration(mode: Mode, subject: Subject, *, with_id: bool) -> None:
    """Refuse what the mode forbids: any change, a caller's id, or the lack of one."""
    must_accept_deletion(mode, subject)
    if with_id and mode is not Mode.IMPORT:
        raise refusals.not_permitted(f"Subject {subject} is not in import mode")
    if not with_id and mode is not Mode.READWRITE:
        raise refusals.not_permitted(
            f"Subject {subject} is not in read-write mode: in import mode give the schema's id"
        )


def must_accept_deletion(mode: Mode, subject: Subject) -> None:
    """Refuse any change in a read-only mode."""
    if mode in _READ_ONLY:
        raise refusals.not_permitted(f"Subject {subject} is in read-only mode")
