"""The settings, the mode, and the actual subject behind a name, inside a transaction."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from headworks._registry.model import config, mode
from headworks._registry.model.config import Config
from headworks._registry.model.mode import Mode
from headworks._registry.store import schemas, settings
from headworks._subject import DEFAULT_CONTEXT, Subject

GLOBAL = ""


def config_of(connection: Connection, subject: Subject) -> Config:
    """Return the settings in force for a subject."""
    scopes = _scopes(subject)
    found = settings.read_configs(connection, scopes)
    return config.in_force(str(subject), *(found.get(scope) for scope in scopes))


def mode_of(connection: Connection, subject: Subject) -> Mode:
    """Return the mode in force for a subject."""
    own, context = str(subject), str(subject.whole_context)
    found = settings.read_modes(connection, _scopes(subject))
    return mode.in_force(
        found.get(own) if subject.name else None,
        found.get(context) if subject.context != DEFAULT_CONTEXT else None,
        found.get(GLOBAL),
    )


def real_subject(connection: Connection, subject: Subject) -> Subject:
    """Return the subject itself, or the subject of which it is an alias."""
    own = settings.read_config(connection, str(subject)) if subject.name else None
    alias = (own or {}).get("alias")
    return Subject.parse(alias, within=subject.context) if alias else subject


def in_other_contexts(connection: Connection, name: str, subject: Subject) -> Iterator[Subject]:
    """Yield the subject in every other context, if the request's `name` names no context."""
    if subject.context == DEFAULT_CONTEXT and not name.startswith((":.", ":*")):
        for context in schemas.context_names(connection):
            if context != DEFAULT_CONTEXT:
                yield Subject(context, subject.name)


def _scopes(subject: Subject) -> list[str]:
    """Return the scopes whose settings apply to a subject, nearest first."""
    context = [str(subject.whole_context)] if subject.context != DEFAULT_CONTEXT else []
    return [*([str(subject)] if subject.name else []), *context, GLOBAL]
