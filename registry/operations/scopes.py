"""The settings, the mode, and the actual subject behind a name, inside a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection

from headworks._registry.model import config, mode
from headworks._registry.model.config import Config
from headworks._registry.model.mode import Mode
from headworks._registry.store import schemas, settings
from headworks._registry.store.subject_states import SubjectState, read_settings, read_state
from headworks._subject import DEFAULT_CONTEXT, GLOBAL_CONTEXT, Subject

GLOBAL = ""
EVERYWHERE = (GLOBAL, str(Subject(GLOBAL_CONTEXT, "")))  # the scopes for all contexts


@dataclass(frozen=True, slots=True)
class ResolvedSubject:
    """The actual subject behind a name, with the settings and the mode in force for it."""

    subject: Subject
    config: Config
    mode: Mode


def resolve(
    connection: Connection, name: Subject, digest: str = ""
) -> tuple[ResolvedSubject, SubjectState]:
    """Return the subject of that name, or the one of which it is an alias, and its state.

    The state has the ids of the content with this digest.
    """
    state = read_state(connection, name, _scopes(name), digest)
    alias = state.configs.get(str(name), {}).get("alias")
    if not alias:
        return _resolved(name, state), state
    actual = Subject.parse(alias, within=name.context)
    state = read_state(connection, actual, _scopes(actual), digest)
    return _resolved(actual, state), state


def config_of(connection: Connection, subject: Subject) -> Config:
    """Return the settings in force for a subject."""
    return _settings(connection, subject).config


def mode_of(connection: Connection, subject: Subject) -> Mode:
    """Return the mode in force for a subject."""
    return _settings(connection, subject).mode


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


def _settings(connection: Connection, subject: Subject) -> ResolvedSubject:
    return _resolved(subject, read_settings(connection, _scopes(subject)))


def _resolved(subject: Subject, state: SubjectState) -> ResolvedSubject:
    scopes, configs, modes = _scopes(subject), state.configs, state.modes
    return ResolvedSubject(
        subject,
        config.in_force(str(subject), *(configs[one] for one in scopes if one in configs)),
        mode.in_force(
            [modes[one] for one in EVERYWHERE if one in modes],
            *(modes[one] for one in scopes if one in modes),
        ),
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
