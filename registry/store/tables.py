"""The tables. Types and keys only; every constraint holds on SQLite and on PostgreSQL.

Rules:

- A row of `schemas` or `audit` is never changed. A row of `versions` changes in `deleted` only.
- `contexts.last_id` only grows, so an id is never given twice, not even after a deletion.
- `state.revision` grows with every change: who caches an answer compares it.
- Times are milliseconds since 1970 (UTC); JSON is kept as text.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

from headworks._server.database import bookkeeping

metadata = MetaData()

own = bookkeeping(metadata)
migrations, state = own.migrations, own.state

contexts = Table(
    "contexts",
    metadata,
    Column("name", String, primary_key=True),
    Column("last_id", BigInteger, nullable=False),
)

schemas = Table(
    "schemas",
    metadata,
    Column("context", String, primary_key=True),
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("guid", String(36), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("text", Text, nullable=False),
    Column("metadata", Text),
    Column("rule_set", Text),
    Column("created_ms", BigInteger, nullable=False),
    Index("schemas_by_digest", "context", "digest"),
    Index("schemas_by_guid", "guid"),
)

# `name` is the type's full name; the target is a subject's context, name and version.
references = Table(
    "schema_references",
    metadata,
    Column("context", String, primary_key=True),
    Column("schema_id", BigInteger, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("name", String, nullable=False),
    Column("written", String, nullable=False),
    Column("to_context", String, nullable=False),
    Column("to_subject", String, nullable=False),
    Column("to_version", Integer, nullable=False),
    ForeignKeyConstraint(["context", "schema_id"], ["schemas.context", "schemas.id"]),
    Index("schema_references_by_target", "to_context", "to_subject", "to_version"),
)

versions = Table(
    "versions",
    metadata,
    Column("context", String, primary_key=True),
    Column("subject", String, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("schema_id", BigInteger, nullable=False),
    Column("deleted", Boolean, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    ForeignKeyConstraint(["context", "schema_id"], ["schemas.context", "schemas.id"]),
    Index("versions_by_schema", "context", "schema_id"),
)

# `scope` is a subject as written, ":.context:" for a context, "" for everything.
configs = Table(
    "configs",
    metadata,
    Column("scope", String, primary_key=True),
    Column("content", Text, nullable=False),
)

modes = Table(
    "modes",
    metadata,
    Column("scope", String, primary_key=True),
    Column("mode", String, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("who", String, nullable=False),
    Column("action", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("version", Integer),
    Column("schema_id", BigInteger),
    Column("detail", Text, nullable=False),
    Index("audit_by_subject", "subject", "seq"),
)
