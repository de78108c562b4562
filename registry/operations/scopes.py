"""The settings, the mode, and the actual subject behind a name, inside a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection

from headworks._registry.model import config, mode
from headworks._registry.model.config import Config
from headworks._registry.model.mode import Mode
from headworks._registry.store import schemas, settings
from headworks._subject import DEFAULT_CONTEXT, GLOBAL_CONTEXT, Subject

GLOBAL = ""
EVERYWHERE = (GLOBAL, str(Subject(GLOBAL_CONTEXT, "")))  # the scopes for all contexts


@dataclass(frozen=True, slots=True)
class ResolvedSubject:
    """The actual subject behind a name, with the settings and the mode in force for it."""

    subject: Subject
    config: Config
    mode: Mode


def resolve(connection: Connection, name: Subject) -> ResolvedSubject:
    """Return the subject of that name, or the one of which it is an alias."""
    found = _settings(connection, name)
    if found.alias:
        found = _settings(connection, Subject.parse(found.alias, within=name.context))
    return found.resolved


def config_of(connection: Connection, subject: Subject) -> Config:
    """Return the settings in force for a subject."""
    return _settings(connection, subject).resolved.config


def mode_of(connection: Connection, subject: Subject) -> Mode:
    """Return the mode in force for a subject."""
    return _settings(connection, subject).resolved.mode


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


@dataclass(frozen=True, slots=True)
class _Settings:
    """The settings that apply to a subject, and its own among them."""

    resolved: ResolvedSubject
    alias: str | None


def _settings(connection: Connection, subject: Subject) -> _Settings:
    scopes = _scopes(subject)
    configs, modes = settings.read_scopes(connection, scopes)
    own = configs.get(str(subject), {}) if subject.name else {}
    for_all = {modes.get(scope) for scope in EVERYWHERE}
    return _Settings(
        ResolvedSubject(
            subject,
            config.in_force(str(subject), *(configs.get(scope) for scope in scopes)),
            mode.in_force(for_all, *(modes.get(scope) for scope in scopes)),
        ),
        own.get("alias"),
    )


def _scopes(subject: Subject) -> list[str]:
    """Return the scopes whose settings apply to a subject, nearest first.

    The default context has the registry's own settings. Other contexts have them as well, if
    neither the context nor `:.__GLOBAL:` has any.
    """
    own = [str(subject)] if subject.name else []
    if subject.context == DEFAULT_CONTEXT:
        return [*own, *EVERYWHERE]
    return [*own, str(subject.whole_context), *reversed(EVERYWHERE)]
