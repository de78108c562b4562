"""The settings, the mode and the real name of a subject, as they are inside a transaction."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from headworks._registry.model import config, mode
from headworks._registry.model.config import Config
from headworks._registry.model.mode import Mode
from headworks._registry.store import schemas, settings
from headworks._subject import DEFAULT_CONTEXT, Subject

__all__ = ["GLOBAL", "config_of", "in_other_contexts", "mode_of", "real_subject"]

GLOBAL = ""


def config_of(connection: Connection, subject: Subject) -> Config:
    """The settings in force for a subject."""
    scopes = _scopes(subject)
    found = settings.read_configs(connection, scopes)
    return config.in_force(*(found.get(scope) for scope in scopes))


def mode_of(connection: Connection, subject: Subject) -> Mode:
    """The mode in force for a subject."""
    own, context = str(subject), str(subject.whole_context)
    found = settings.read_modes(connection, _scopes(subject))
    return mode.in_force(
        found.get(own) if subject.name else None,
        found.get(context) if subject.context != DEFAULT_CONTEXT else None,
        found.get(GLOBAL),
    )


def real_subject(connection: Connection, subject: Subject) -> Subject:
    """The subject itself, or the one that its settings say it is another name of."""
    own = settings.read_config(connection, str(subject)) if subject.name else None
    alias = (own or {}).get("alias")
    return Subject.parse(alias, within=subject.context) if alias else subject


def in_other_contexts(connection: Connection, name: str, subject: Subject) -> Iterator[Subject]:
    """The subject in every other context, if `name`, as a request gives it, names no context."""
    if subject.context == DEFAULT_CONTEXT and not name.startswith((":.", ":*")):
        for context in schemas.context_names(connection):
            if context != DEFAULT_CONTEXT:
                yield Subject(context, subject.name)


def _scopes(subject: Subject) -> list[str]:
    """Where settings of a subject are looked for, nearest first."""
    context = [str(subject.whole_context)] if subject.context != DEFAULT_CONTEXT else []
    return [*([str(subject)] if subject.name else []), *context, GLOBAL]
