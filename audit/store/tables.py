"""The tables. Types and keys only; every constraint holds on SQLite and on PostgreSQL.

Rules:

- `positions` moves in the transaction that adds what lies before it: a restart repeats nothing.
- `increments` has every increment once, by its id, until upkeep removes old ones; the sums in
  `windows`, `outcomes` and `progress` are sums of increments and of nothing else.
- A row of `windows` is one tier's count of one topic and window; `accounted` is what a tier below
  the producer had in its hands, however it ended there.
- Times are milliseconds since 1970 (UTC), but for `progress.second`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

from headworks._server.database import bookkeeping

# Names in `facts`: the cluster whose topic was read, the id of that topic (KIP-516), and how many
# messages were gone before. The thresholds of the reconciler that keeps the store, and when it last
# checked it. The end of the last hole in the counts, and the time up to which the reconciler has
# read the topic.
CLUSTER, TOPIC_ID, MISSED, THRESHOLDS = "cluster", "topic_id", "missed", "thresholds"
CHECKED, HOLE, READ_UNTIL = "checked", "hole", "read_until"

metadata = MetaData()
own = bookkeeping(metadata, prefix="audit_")

# The sums in `windows`, in this order.
COUNTED = (
    "attempted",
    "delivered",
    "failed",
    "dropped",
    "unresolved",
    "accounted",
    "quarantined",
    "late",
    "gone",
    "bytes",
)

# The windows of the producers with messages that the loader may still reach.
NOT_PASSED = text("passed <> delivered + unresolved")

# The loader's next offset and the time of its commit. The log's bounds when they were last asked
# for, and the end of the log at the last cut (null: there is none).
log_positions = Table(
    "audit_log_positions",
    metadata,
    Column("topic", String, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("loaded", BigInteger),
    Column("loaded_at", BigInteger),
    Column("log_start", BigInteger),
    Column("log_end", BigInteger),
    Column("marked", BigInteger),
    sqlite_with_rowid=False,
)

positions = Table(
    "audit_positions",
    metadata,
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("next_offset", BigInteger, nullable=False),
)

facts = Table(
    "audit_facts",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False),
)

# Topics, tiers, hosts and applications by number: an increment's row is short.
names = Table(
    "audit_names",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", String, nullable=False, unique=True),
)

increments = Table(
    "audit_increments",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("id", LargeBinary(16), nullable=False),
    Column("topic", Integer, nullable=False),
    Column("window_start", BigInteger, nullable=False),
    Column("tier", Integer, nullable=False),
    Column("host", Integer, nullable=False),
    Column("application", Integer, nullable=False),
    Column("sent_at", BigInteger, nullable=False),
    Column("read_at", BigInteger, nullable=False),
    Column("counts", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("load", BigInteger),
    Column("ranges", Text),
    Index("audit_increments_by_id", "id", unique=True),
    Index("audit_increments_by_window", "topic", "window_start"),
)

windows = Table(
    "audit_windows",
    metadata,
    Column("tier", String, primary_key=True),
    Column("window_start", BigInteger, primary_key=True, autoincrement=False),
    Column("topic", String, primary_key=True),
    *(Column(name, BigInteger, nullable=False) for name in COUNTED),
    Column("first_sent", BigInteger, nullable=False),
    Column("last_sent", BigInteger, nullable=False),
    Column("complete_at", BigInteger),
    # Of the delivered and unresolved messages: how many are at offsets that the loader has passed,
    # and how many are before the offsets of `log_positions.marked` (`cuts`).
    Column("passed", BigInteger, nullable=False, server_default="0"),
    Column("marked", BigInteger, nullable=False, server_default="0"),
    Index("audit_windows_by_topic", "topic", "window_start"),
    Index(
        "audit_windows_not_passed",
        "topic",
        sqlite_where=NOT_PASSED,
        postgresql_where=NOT_PASSED,
    ),
    sqlite_with_rowid=False,
)

# Drops by reason, and whatever else a tier names that has no column of its own.
outcomes = Table(
    "audit_outcomes",
    metadata,
    Column("topic", String, primary_key=True),
    Column("window_start", BigInteger, primary_key=True, autoincrement=False),
    Column("tier", String, primary_key=True),
    Column("outcome", String, primary_key=True),
    Column("messages", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# How a tier's accounted messages grew: sums by the second in which they were said.
progress = Table(
    "audit_progress",
    metadata,
    Column("topic", String, primary_key=True),
    Column("window_start", BigInteger, primary_key=True, autoincrement=False),
    Column("tier", String, primary_key=True),
    Column("second", BigInteger, primary_key=True, autoincrement=False),
    Column("accounted", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# Samples by name, many to a row: `values` is a JSON list with one slot (a number or null) for every
# `step_ms` from `start` on. `headworks._audit.store.samples` writes them.
samples = Table(
    "audit_samples",
    metadata,
    Column("kind", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("step_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("values", Text, nullable=False),
    sqlite_with_rowid=False,
)

# Which topics a tier has ever counted.
topics = Table(
    "audit_topics",
    metadata,
    Column("tier", String, primary_key=True),
    Column("topic", String, primary_key=True),
    Column("first_sent", BigInteger, nullable=False),
    Column("last_sent", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# The processes that report. `unsettled` messages are attempted and not resolved. `lag_ms` is the
# least difference between a source's clock and ours in its last batch (null: never seen live).
sources = Table(
    "audit_sources",
    metadata,
    Column("tier", String, primary_key=True),
    Column("host", String, primary_key=True),
    Column("application", String, primary_key=True),
    Column("first_sent", BigInteger, nullable=False),
    Column("last_sent", BigInteger, nullable=False),
    Column("unsettled", BigInteger, nullable=False),
    Column("lag_ms", BigInteger),
    sqlite_with_rowid=False,
)

# The processes that count, by their heartbeats: when the last one was sent, and the milliseconds
# until the next one. 1 says that the process has ended and all its counts are published.
processes = Table(
    "audit_processes",
    metadata,
    Column("process", String, primary_key=True),
    Column("tier", String, nullable=False),
    Column("host", String, nullable=False),
    Column("application", String, nullable=False),
    Column("last_sent", BigInteger, nullable=False),
    Column("every_ms", BigInteger, nullable=False),
    Column("ended", Integer, nullable=False),
    Index("audit_processes_by_end", "ended", "last_sent"),
    sqlite_with_rowid=False,
)

# The usual volume of a topic (`volume_bands`), and its window that was judged last.
volumes = Table(
    "audit_volumes",
    metadata,
    Column("topic", String, primary_key=True),
    Column("window_start", BigInteger, nullable=False),
    Column("counted", BigInteger, nullable=False),
    Column("usual", BigInteger, nullable=False),
    Column("unusual", Integer, nullable=False),
    Column("packed", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

# The writers and readers of each schema's messages. The ids are NOT_COUNTED if the tier does not
# count by schema. `written` is 0 without a schema id. `read` is 0 for a schema that is not
# registered, and NO_READER without a reader's schema. The host is empty after its details have
# expired.
NOT_COUNTED, NO_READER = -1, -2
schema_uses = Table(
    "audit_schema_uses",
    metadata,
    Column("topic", String, primary_key=True),
    Column("written", BigInteger, primary_key=True, autoincrement=False),
    Column("read", BigInteger, primary_key=True, autoincrement=False),
    Column("tier", String, primary_key=True),
    Column("application", String, primary_key=True),
    Column("host", String, primary_key=True),
    Column("messages", BigInteger, nullable=False),
    Column("first_sent", BigInteger, nullable=False),
    Column("last_sent", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

unreadable = Table(
    "audit_unreadable",
    metadata,
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("offset", BigInteger, primary_key=True, autoincrement=False),
    Column("reason", Text, nullable=False),
)

alerts = Table(
    "audit_alerts",
    metadata,
    Column("key", String, primary_key=True),
    Column("content", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
)
