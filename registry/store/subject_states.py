"""Reads by one statement what a request needs of a subject before its schemas.

Rule: every function works inside the caller's transaction. Soft-deleted versions have numbers, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    ColumnClause,
    Connection,
    String,
    and_,
    bindparam,
    cast,
    func,
    literal_column,
    select,
    union_all,
)

from headworks._registry.model.definition import JsonObject
from headworks._registry.store.tables import configs, contexts, modes, schemas, versions
from headworks._server.database import PreparedStatement
from headworks._subject import Subject

# The kinds of rows, in the text of the statement: a value would be sent each time.
_CONFIG, _MODE, _NUMBERS, _LAST_ID, _ID = range(5)
MOST_SCOPES: Final = 4
_NO_NAME: ColumnClause[str] = literal_column("''")
_SCOPES: list[BindParameter[str]] = [bindparam(f"s{number}") for number in range(MOST_SCOPES)]
_OF_CONTEXT = versions.c.context == bindparam("context")
_OF_SUBJECT = and_(_OF_CONTEXT, versions.c.subject == bindparam("subject"))
_SETTINGS = (
    select(literal_column(str(_CONFIG)), configs.c.scope, configs.c.content).where(
        configs.c.scope.in_(_SCOPES)
    ),
    select(literal_column(str(_MODE)), modes.c.scope, modes.c.mode).where(
        modes.c.scope.in_(_SCOPES)
    ),
)
_IN_FORCE = PreparedStatement(union_all(*_SETTINGS))
_HIGHEST = select(func.max(versions.c.version)).where(_OF_SUBJECT)
_LIVE = (
    select(versions.c.version)
    .where(_OF_SUBJECT, versions.c.deleted.is_(False))
    .order_by(versions.c.version.desc())
    .limit(1)
)
_HAS_A_VERSION = (
    select(versions.c.version)
    .where(versions.c.context == schemas.c.context, versions.c.schema_id == schemas.c.id)
    .exists()
)
_STATE = PreparedStatement(
    union_all(
        *_SETTINGS,
        select(
            literal_column(str(_NUMBERS)),
            cast(_HIGHEST.scalar_subquery(), String),
            cast(_LIVE.scalar_subquery(), String),
        ),
        select(literal_column(str(_LAST_ID)), _NO_NAME, cast(contexts.c.last_id, String)).where(
            contexts.c.name == bindparam("context")
        ),
        select(literal_column(str(_ID)), _NO_NAME, cast(schemas.c.id, String)).where(
            schemas.c.context == bindparam("context"),
            schemas.c.digest == bindparam("digest"),
            _HAS_A_VERSION,
        ),
    )
)


@dataclass(slots=True)
class SubjectState:
    """The settings by scope, the numbers of a subject, and the ids that some content has."""

    configs: dict[str, JsonObject] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    highest: int = 0  # the highest number of a version, soft-deleted ones included; 0: none
    is_live: bool = False  # whether it has a version that is not deleted
    last_id: int | None = None  # the highest id given out in the context
    ids: list[int] = field(default_factory=list)  # of registered content with the digest, ascending


def read_settings(connection: Connection, scopes: Sequence[str]) -> SubjectState:
    """Return the settings and the modes of those of the scopes that have any."""
    return _state(_IN_FORCE.rows(connection, _named(scopes)))


def read_state(
    connection: Connection, subject: Subject, scopes: Sequence[str], digest: str
) -> SubjectState:
    """Return the same with the numbers of a subject, and the ids in its context with a digest."""
    asked = {**_named(scopes), "context": subject.context, "subject": subject.name}
    return _state(_STATE.rows(connection, {**asked, "digest": digest}))


def _named(scopes: Sequence[str]) -> dict[str, str]:
    names = (*scopes, *[scopes[-1]] * (MOST_SCOPES - len(scopes)))
    return {one.key: name for one, name in zip(_SCOPES, names, strict=True)}


def _state(rows: Sequence[tuple[Any, ...]]) -> SubjectState:
    found = SubjectState()
    for kind, name, content in rows:
        if kind == _CONFIG:
            found.configs[name] = json.loads(content)
        elif kind == _MODE:
            found.modes[name] = content
        elif kind == _NUMBERS:
            found.highest, found.is_live = int(name or 0), content is not None
        elif kind == _LAST_ID:
            found.last_id = int(content)
        else:
            found.ids.append(int(content))
    found.ids.sort()
    return found
