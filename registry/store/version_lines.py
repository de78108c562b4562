"""A page of versions in lines (`headworks._version_lines`), composed by SQLite.

SQLite releases the interpreter's lock for each row that it reads, and each value becomes an object
of Python. A page that SQLite composes is one row: it takes less than half the time, and other
threads run meanwhile.

Rule: a page is left to Python if it spans contexts, or if a version in it is soft-deleted, or has
references, metadata, rules, or line breaks in its text.
"""

from __future__ import annotations

import json
import sqlite3

from sqlalchemy import (
    Connection,
    LargeBinary,
    and_,
    bindparam,
    cast,
    func,
    literal_column,
    or_,
    select,
)

from headworks import _version_lines
from headworks._registry.store.schemas import VersionPage
from headworks._registry.store.tables import references, schemas, versions
from headworks._server.database import PreparedStatement

_HAS_JSON = sqlite3.sqlite_version_info >= (3, 38)  # before, it was an option of SQLite's build
_NAMES = func.json_each(bindparam("subjects")).table_valued("value")
_IN_PAGE = and_(
    versions.c.context == bindparam("context"),
    versions.c.subject.in_(select(_NAMES.c.value)),
    or_(bindparam("every"), ~versions.c.deleted),
)
_USED = select(references.c.name).where(
    references.c.context == schemas.c.context, references.c.schema_id == schemas.c.id
)
_HAS_MORE = or_(
    versions.c.deleted,
    schemas.c.metadata.is_not(None),
    schemas.c.rule_set.is_not(None),
    _USED.exists(),
)
# The subquery has a limit, so SQLite keeps its order for `group_concat`.
_ROW = (
    select(
        *(versions.c.subject, versions.c.version, versions.c.created_ms),
        *(schemas.c.id, schemas.c.guid, schemas.c.text, _HAS_MORE.label("has_more")),
    )
    .join_from(
        versions,
        schemas,
        and_(versions.c.context == schemas.c.context, versions.c.schema_id == schemas.c.id),
    )
    .where(_IN_PAGE)
    .order_by(versions.c.subject, versions.c.version)
    .offset(bindparam("skipped"))
    .limit(bindparam("most"))
    .subquery()
    .c
)
_COLUMNS = {
    "subject": func.json_quote(bindparam("prefix") + _ROW.subject),
    "version": _ROW.version,
    "id": _ROW.id,
    "guid": func.json_quote(_ROW.guid),
    "ts": _ROW.created_ms,
}
_LINES = PreparedStatement(
    select(
        func.count(),
        func.max(_ROW.has_more),
        cast(func.group_concat(_ROW.text, literal_column("char(10)")), LargeBinary),
        *(func.group_concat(column) for column in _COLUMNS.values()),
    )
)


def page_of(connection: Connection, page: VersionPage) -> bytes | None:
    """Return the lines of what `schemas.page_of` returns; None if Python must compose them."""
    if connection.dialect.name != "sqlite" or not _HAS_JSON or page.latest_only or page.deleted:
        return None
    if not page.subjects:
        return _version_lines.encode([])
    first = page.subjects[0]
    if page.subjects[-1].context != first.context:  # they are sorted
        return None
    asked = {
        "context": first.context,
        "prefix": str(first.whole_context),
        "subjects": json.dumps([one.name for one in page.subjects]),
        "every": page.deleted is None,
        "skipped": page.skipped,
        "most": page.most,
    }
    ((count, has_more, texts, *joined),) = _LINES.rows(connection, asked)
    if has_more or texts.count(b"\n") != count - 1:
        return None
    arrays = {name: f"[{values}]" for name, values in zip(_COLUMNS, joined, strict=True)}
    return _version_lines.compose(arrays, [texts])
