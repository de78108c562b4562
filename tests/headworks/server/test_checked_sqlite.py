"""Bytes of an SQLite file that change are noticed, and all rows that are intact are kept."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headworks._server.checked_sqlite import row_checksums
from headworks._server.checked_sqlite.check import check
from headworks._server.checked_sqlite.salvage import salvage
from headworks._server.checked_sqlite.write_ahead_log import log_path, read_log
from headworks.errors import CorruptError

pytestmark = pytest.mark.unit

_ROWS = 600
_PAGE_BYTES = 4096
_FIX = "restore it"
_TABLES = """BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS numbered (id INTEGER PRIMARY KEY, text TEXT, raw BLOB, real REAL);
CREATE INDEX IF NOT EXISTS numbered_by_text ON numbered (text);
CREATE TABLE IF NOT EXISTS keyed (
    name TEXT, part INTEGER, value TEXT NOT NULL, PRIMARY KEY (part, name)) WITHOUT ROWID;
"""


def make(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    row_checksums.prepare(db)
    db.execute("PRAGMA journal_mode=WAL")
    db.executescript(_TABLES)
    row_checksums.protect(db)
    db.execute("COMMIT")
    return db


def fill(db: sqlite3.Connection, first: int, rows: int) -> None:
    db.execute("BEGIN")
    for i in range(first, first + rows):
        raw = None if i % 5 == 0 else bytes([i % 256]) * (9000 if i % 97 == 0 else i % 60)
        text = "a\0é" * (i % 20)
        db.execute("INSERT INTO numbered (text, raw, real) VALUES (?, ?, ?)", (text, raw, i / 4))
        db.execute("INSERT INTO keyed VALUES (?, ?, ?)", (f"k{i}", i % 7, "v" * (i % 30)))
    db.execute("COMMIT")


def rows_of(path: Path) -> list[set[tuple[Any, ...]]]:
    with closing(sqlite3.connect(path)) as db:
        return [set(db.execute(f"SELECT * FROM {name}")) for name in ("numbered", "keyed")]


def close(path: Path) -> None:
    make(path).close()


def check_and_open(path: Path) -> None:
    """Opening names what the check leaves to it: a file that is none of SQLite."""
    check(path, _FIX)
    close(path)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "s.db"
    with closing(make(path)) as db:
        fill(db, 0, _ROWS)
        db.execute("DELETE FROM keyed WHERE part = 3")
    check(path, _FIX)
    return path.read_bytes()


@pytest.mark.parametrize("case", range(60))
def test_a_changed_byte_is_noticed_and_costs_its_row(
    good: bytes, tmp_path: Path, case: int
) -> None:
    path, random = tmp_path / "s.db", Random(case)
    path.write_bytes(good)
    before = rows_of(path)
    content = bytearray(good)
    at = random.randrange(len(content))
    content[at] ^= 1 << random.randrange(8)
    path.write_bytes(content)
    try:
        check_and_open(path)
    except (CorruptError, sqlite3.DatabaseError):
        found = salvage(path, close, lambda _path, _rows: None)
        assert found.moved_to.exists()
        check(path, _FIX)
        after = rows_of(path)
        assert not any(now - then for now, then in zip(after, before, strict=True))
        lost = sum(len(then - now) for now, then in zip(after, before, strict=True))
        # A page whose head or pointers are changed hides its rows, but no others.
        assert lost <= 1 or (at % _PAGE_BYTES < 400 and lost < 150)
    else:
        assert rows_of(path) == before


def test_a_lost_page_costs_its_rows_alone(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(good)
    before = rows_of(path)
    for page in range(0, len(good) // _PAGE_BYTES, 3):
        at = page * _PAGE_BYTES
        path.write_bytes(good[:at] + bytes(_PAGE_BYTES) + good[at + _PAGE_BYTES :])
        with pytest.raises((CorruptError, sqlite3.DatabaseError)):
            check_and_open(path)
        salvage(path, close, lambda _path, _rows: None)
        after = rows_of(path)
        assert not any(now - then for now, then in zip(after, before, strict=True))
        assert sum(len(then - now) for now, then in zip(after, before, strict=True)) < 200


def test_a_store_of_an_earlier_release_is_converted(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(_TABLES + "COMMIT")
        fill(db, 0, 50)
    with closing(make(path)) as db:
        db.executescript("BEGIN; ALTER TABLE keyed ADD COLUMN more TEXT DEFAULT 'x'")
        row_checksums.protect(db)
        db.execute("COMMIT")
        assert row_checksums.columns(db, "keyed") == ["name", "part", "value", "more"]
        with pytest.raises(sqlite3.IntegrityError):
            db.execute("INSERT INTO keyed VALUES ('k1', 1, 'v', '')")
    check(path, _FIX)
    assert [len(rows) for rows in rows_of(path)] == [50, 50]


def test_a_damaged_write_ahead_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"
    with closing(make(path)) as db:
        for number in range(3):
            fill(db, number * 10, 10)
        stored, log = path.read_bytes(), log_path(path).read_bytes()
    frames = range(32, len(log), 24 + _PAGE_BYTES)
    ends = [at for at in frames if log[at + 4 : at + 8] != bytes(4)]
    assert len(ends) == 4  # the tables, and three times rows
    for at, lost in ((ends[-1] + 100, 1), (ends[1] + 100, 3), (ends[1] + 9, 3), (8, 4)):
        copy.write_bytes(stored)
        damaged = bytearray(log)
        damaged[at] ^= 16
        log_path(copy).write_bytes(damaged)
        assert read_log(copy).lost_commits == lost
        if lost > 1:
            with pytest.raises(CorruptError, match=f"-wal is damaged at byte .* {lost} trans"):
                check(copy, _FIX)
            check(copy, _FIX, flushes=False)
        else:
            check(copy, _FIX)
        assert "is kept in" in caplog.text
        caplog.clear()
        for file in tmp_path.glob("copy.db*"):
            file.unlink()


def test_the_rows_of_a_write_ahead_log_are_salvaged(tmp_path: Path) -> None:
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"
    with closing(make(path)) as db:
        fill(db, 0, 40)
        before = rows_of(path)
        copy.write_bytes(path.read_bytes())
        log_path(copy).write_bytes(log_path(path).read_bytes())
    found = salvage(copy, close, lambda _path, _rows: None)
    assert found.rows.total() == 80
    assert rows_of(copy) == before
