"""Queries over settings and modes, by scope: "" for all, `:.context:` for one, or a subject."""

from __future__ import annotations

import json
from typing import cast

from sqlalchemy import Connection, Table, bindparam, delete, insert, select, update

from headworks._registry.model.definition import JsonObject
from headworks._registry.store.tables import configs, modes
from headworks._server.database import PreparedStatement

# Prepared, because most reads of a subject begin with it.
_CONFIG = PreparedStatement(select(configs.c.content).where(configs.c.scope == bindparam("scope")))


def read_config(connection: Connection, scope: str) -> JsonObject | None:
    """The settings made at exactly this scope, or None."""
    content = _CONFIG.scalar(connection, {"scope": scope})
    return None if content is None else cast(JsonObject, json.loads(content))


def aliases(connection: Connection) -> dict[str, str]:
    """Every scope that is another name of a subject, with that subject as written there."""
    statement = select(configs.c.scope, configs.c.content).where(
        configs.c.content.contains('"alias"')
    )
    found = {scope: json.loads(content) for scope, content in connection.execute(statement)}
    return {scope: found[scope]["alias"] for scope in sorted(found) if "alias" in found[scope]}


def write_config(connection: Connection, scope: str, config: JsonObject) -> None:
    """Replace the settings made at this scope."""
    _put(connection, configs, scope, content=json.dumps(config, ensure_ascii=False))


def drop_config(connection: Connection, scope: str) -> None:
    """Forget the settings made at this scope."""
    connection.execute(delete(configs).where(configs.c.scope == scope))


def read_mode(connection: Connection, scope: str) -> str | None:
    """The mode set at exactly this scope, or None."""
    return connection.scalar(select(modes.c.mode).where(modes.c.scope == scope))


def write_mode(connection: Connection, scope: str, mode: str) -> None:
    """Set the mode at this scope."""
    _put(connection, modes, scope, mode=mode)


def drop_mode(connection: Connection, scope: str) -> None:
    """Forget the mode set at this scope."""
    connection.execute(delete(modes).where(modes.c.scope == scope))


def scopes_of_modes(connection: Connection) -> list[str]:
    """Every scope that has a mode of its own."""
    return sorted(connection.scalars(select(modes.c.scope)))


def _put(connection: Connection, table: Table, scope: str, **values: str) -> None:
    # Writers run one after the other, so update-or-insert needs no dialect's UPSERT.
    changed = connection.execute(update(table).where(table.c.scope == scope).values(**values))
    if changed.rowcount == 0:
        connection.execute(insert(table).values(scope=scope, **values))
