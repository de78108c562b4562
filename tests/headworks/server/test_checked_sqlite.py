"""Bytes of an SQLite file that change are noticed, and all rows that are intact are kept."""

from __future__ import annotations

import sqlite3
from array import array
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest

from headworks._server.checked_sqlite import row_checksums, sealed_pages
from headworks._server.checked_sqlite.check import Checked, check
from headworks._server.checked_sqlite.commit_counter import (
    CommitCounter,
    counter_path,
    refuse_missing,
    required_commits,
)
from headworks._server.checked_sqlite.salvage import salvage
from headworks._server.checked_sqlite.sealed_pages import (
    is_as_sealed,
    page_sums,
    seal,
    seal_path,
)
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


@pytest.mark.seconds
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


@pytest.fixture(scope="module")
def sealed(good: bytes, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A good store, and its seal."""
    path = tmp_path_factory.mktemp("sealed") / "s.db"
    path.write_bytes(good)
    check(path, _FIX, checked=Checked.AND_SEALED)
    return good, seal_path(path).read_bytes()


@pytest.fixture(params=["in memory", "from its file"])
def read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the pages of a store are read: as those of a small one, and of a large one."""
    if request.param == "from its file":
        monkeypatch.setattr(sealed_pages, "_MAX_BYTES_IN_MEMORY", 0)


@pytest.mark.usefixtures("read")
@pytest.mark.parametrize("case", range(40))
def test_a_changed_byte_is_noticed_by_the_seal(
    sealed: tuple[bytes, bytes], tmp_path: Path, case: int
) -> None:
    path, random = tmp_path / "s.db", Random(case)
    path.write_bytes(sealed[0])
    before = rows_of(path)
    seal_path(path).write_bytes(sealed[1])
    damaged = seal_path(path) if case % 8 == 7 else path
    content = bytearray(damaged.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    damaged.write_bytes(content)
    try:
        check(path, _FIX, checked=Checked.BY_SEAL)
        close(path)
    except (CorruptError, sqlite3.DatabaseError):
        assert damaged == path
    else:
        assert rows_of(path) == before


def _seal_damaged(path: Path, good: bytes) -> None:
    """Make a store with a changed byte in a row, and seal it, as nothing but these tests would."""
    content = bytearray(good)
    content[content.rindex(b"vvvv")] ^= 1
    path.write_bytes(content)
    with closing(sqlite3.connect(path)) as db:
        sums = page_sums(db, path, {})
    assert sums is not None
    seal(path, sums, _PAGE_BYTES)


@pytest.mark.usefixtures("read")
def test_the_rows_of_a_sealed_store_are_not_checked(tmp_path: Path, good: bytes) -> None:
    path = tmp_path / "s.db"
    _seal_damaged(path, good)
    check(path, _FIX, checked=Checked.BY_SEAL)
    with pytest.raises(CorruptError, match=r"row .*vvv"):
        check(path, _FIX)
    seal_path(path).unlink()
    with pytest.raises(CorruptError, match=r"row .*vvv"):
        check(path, _FIX, checked=Checked.BY_SEAL)


@pytest.mark.usefixtures("read")
def test_a_store_is_sealed_again_after_others_wrote(tmp_path: Path, good: bytes) -> None:
    path, killed = tmp_path / "s.db", tmp_path / "killed.db"
    path.write_bytes(good)
    check(path, _FIX, checked=Checked.AND_SEALED)
    with closing(make(path)) as db:
        fill(db, _ROWS, 20)
        for name in (path, log_path(path), seal_path(path)):
            copy = killed.with_name(name.name.replace(path.name, killed.name))
            copy.write_bytes(name.read_bytes())
    for store in (path, killed):
        before = seal_path(store).read_bytes()
        check(store, _FIX, checked=Checked.BY_SEAL)
        assert seal_path(store).read_bytes() != before
        check(store, _FIX)


def test_a_server_checks_each_row_unless_the_store_is_large(
    tmp_path: Path, good: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    _seal_damaged(path, good)
    with pytest.raises(CorruptError, match=r"row .*vvv"):
        check(path, _FIX, checked=Checked.AND_SEALED)
    monkeypatch.setattr(sealed_pages, "_MAX_BYTES_IN_MEMORY", len(good) - 1)
    check(path, _FIX, checked=Checked.AND_SEALED)


def test_the_page_of_locks_is_no_damage(tmp_path: Path) -> None:
    """SQLite skips the page at 1 GB, so no log has it, and it is sealed as 0."""
    path, locks = tmp_path / "s.db", (1 << 30) // _PAGE_BYTES
    found = array("I", [7]) * (locks + 2)
    logged = array("I", found)
    logged[locks] = 0
    seal(path, logged, _PAGE_BYTES)
    assert is_as_sealed(path, found, {})
    for other in (locks - 1, locks + 1):
        logged = array("I", found)
        logged[other] = 0
        seal(path, logged, _PAGE_BYTES)
        assert not is_as_sealed(path, found, {})


def test_the_log_of_a_large_store_has_its_newest_pages(
    tmp_path: Path, good: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(good)
    with closing(make(path)) as db:
        fill(db, _ROWS, 20)
        db.execute("BEGIN")
        in_memory = page_sums(db, path, {})
        monkeypatch.setattr(sealed_pages, "_MAX_BYTES_IN_MEMORY", 0)
        from_file = page_sums(db, path, read_log(path).pages)
        assert in_memory == from_file != page_sums(db, path, {})


def _counted(path: Path, commits: int, *, flushed: int) -> None:
    counter = CommitCounter(path)
    counter.begin(path, lambda: 0, _FIX)
    for number in range(1, commits + 1):
        counter.record(number, flushed=number <= flushed)
    counter.close()


def _begin(path: Path, commits: int) -> None:
    counter = CommitCounter(path)
    try:
        counter.begin(path, lambda: commits, _FIX)
    finally:
        counter.close()


def test_a_store_that_lacks_commits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    _counted(path, 9, flushed=4)
    with pytest.raises(CorruptError, match=r"lacks 1 of the 9 .* s\.db-wal was deleted") as caught:
        _begin(path, 8)
    assert str(counter_path(path)) in str(caught.value)
    with pytest.raises(CorruptError, match="is missing, and held 9"):
        refuse_missing(path, _FIX)
    _begin(path, 10)
    assert required_commits(path) == 10


def test_a_power_cut_may_lose_what_was_not_flushed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    _counted(path, 9, flushed=4)
    record = bytearray(counter_path(path).read_bytes()[:-4])
    record[-16:] = b"of another boot."
    counter_path(path).write_bytes(bytes(record) + crc32(record).to_bytes(4, "big"))
    with pytest.raises(CorruptError, match="lacks 1 of the 4"):
        _begin(path, 3)
    _begin(path, 5)
    assert required_commits(path) == 5


@pytest.mark.parametrize("at", range(0, 44, 3))
def test_a_damaged_counter_is_begun_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int
) -> None:
    path = tmp_path / "s.db"
    _counted(path, 9, flushed=9)
    content = bytearray(counter_path(path).read_bytes())
    content[at] ^= 4
    counter_path(path).write_bytes(content)
    _begin(path, 7)
    assert "is damaged, and is begun again" in caplog.text
    assert required_commits(path) == 7
