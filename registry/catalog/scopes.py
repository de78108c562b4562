"""The settings, the mode and the real name of a subject, as they are inside a transaction."""

from __future__ import annotations

from sqlalchemy import Connection

from registry.model import config, mode
from registry.model.config import Config
from registry.model.mode import Mode
from registry.model.subject import DEFAULT_CONTEXT, Subject
from registry.store import settings

__all__ = ["GLOBAL", "config_of", "mode_of", "real_subject"]

GLOBAL = ""


def config_of(connection: Connection, subject: Subject) -> Config:
    """The settings in force for a subject."""
    return config.in_force(
        settings.read_config(connection, str(subject)) if subject.name else None,
        _of_context(connection, subject),
        settings.read_config(connection, GLOBAL),
    )


def mode_of(connection: Connection, subject: Subject) -> Mode:
    """The mode in force for a subject."""
    context = None
    if subject.context != DEFAULT_CONTEXT:
        context = settings.read_mode(connection, str(subject.whole_context))
    return mode.in_force(
        settings.read_mode(connection, str(subject)) if subject.name else None,
        context,
        settings.read_mode(connection, GLOBAL),
    )


def real_subject(connection: Connection, subject: Subject) -> Subject:
    """The subject itself, or the one that its settings say it is another name of."""
    own = settings.read_config(connection, str(subject)) if subject.name else None
    alias = (own or {}).get("alias")
    return Subject.parse(alias, within=subject.context) if alias else subject


def _of_context(connection: Connection, subject: Subject) -> dict[str, object] | None:
    if subject.context == DEFAULT_CONTEXT:
        return None
    found = settings.read_config(connection, str(subject.whole_context))
    return None if found is None else dict(found)
