"""Stores that were killed, and whose write-ahead log is deleted or damaged: no commit is missed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from headworks._broker.topics.adoption import salvage_store
from headworks._registry.store import RegistryStore, tables
from headworks._registry.store.salvage import salvage_registry
from headworks._server.checked_sqlite import check as store_check
from headworks._server.checked_sqlite.sealed_pages import seal_path
from headworks._server.checked_sqlite.write_ahead_log import log_path
from headworks.errors import CorruptError
from tests.soak.damage_stores import STORES, StoreKind

pytestmark = pytest.mark.unit


def _delete(log: Path) -> None:
    log.unlink()


def _truncate(log: Path) -> None:
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])


def _cut_the_last_frame(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-4120])


def _flip_a_bit_of_the_last_frame(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[-99] ^= 1
    log.write_bytes(content)


def _flip_a_bit_of_the_first_frame(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[60] ^= 1
    log.write_bytes(content)


def _flip_a_bit_of_the_header(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[18] ^= 1
    log.write_bytes(content)


def _delete_the_store(log: Path) -> None:
    log.with_name(log.name.removesuffix("-wal")).unlink()


HARMS = (
    _delete,
    _truncate,
    _cut_the_last_frame,
    _flip_a_bit_of_the_last_frame,
    _flip_a_bit_of_the_first_frame,
    _flip_a_bit_of_the_header,
    _delete_the_store,
)
KEPT = ("registry store", "audit store", "coordination store")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each store as a killed program leaves it."""
    found = {}
    for name in KEPT:
        folder = tmp_path_factory.mktemp("stores") / "made"
        (folder / "broker").mkdir(parents=True)
        close = STORES[name].fill(folder)
        found[name] = folder.with_name("killed")
        shutil.copytree(folder, found[name])
        close()
    return found


@pytest.mark.seconds
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", KEPT)
def test_a_lost_log_is_refused(
    killed: dict[str, Path], tmp_path: Path, name: str, harm: Callable[[Path], None]
) -> None:
    kind: StoreKind = STORES[name]
    folder = tmp_path / "copy"
    shutil.copytree(killed[name], folder)
    kind.open(folder)  # as it was left, it is whole
    shutil.rmtree(folder)
    shutil.copytree(killed[name], folder)
    file = folder / kind.file
    harm(log_path(file))
    for _ in range(2):
        with pytest.raises(CorruptError) as caught:
            kind.open(folder)
        assert file.name in str(caught.value)


@pytest.fixture
def damaged(killed: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """Copies a killed store, and deletes its log."""

    def copy(name: str) -> Path:
        shutil.copytree(killed[name], tmp_path / name)
        log_path(tmp_path / name / STORES[name].file).unlink()
        return tmp_path / name

    return copy


def test_a_registry_that_lost_commits_assigns_no_id_again(
    killed: dict[str, Path], tmp_path: Path
) -> None:
    kind, folder = STORES["registry store"], tmp_path / "copy"
    shutil.copytree(killed["registry store"], folder)
    kind.open(folder)
    file, older = folder / kind.file, tmp_path / "older"
    shutil.copy(file, older)
    store = RegistryStore(f"sqlite:///{file}")
    with store.write():
        pass
    store.close()
    shutil.copy(older, file)
    with pytest.raises(CorruptError, match=r"lacks 1 of the .* or an old copy"):
        kind.open(folder)
    assert salvage_registry(f"sqlite:///{file}").rows.rows["schemas"]
    opened = RegistryStore(f"sqlite:///{file}")
    with opened.read() as connection:
        last_ids = list(connection.scalars(select(tables.contexts.c.last_id)))
    opened.close()
    assert min(last_ids) > 1000


def test_a_broker_without_its_log_starts_after_salvage(damaged: Callable[[str], Path]) -> None:
    folder = damaged("coordination store")
    rows, adopted = salvage_store(folder / "broker")
    assert rows.moved_to.exists()
    assert len(adopted) == 20
    STORES["coordination store"].open(folder)


def test_an_audit_store_without_a_seal_or_with_an_old_one_is_checked(
    killed: dict[str, Path], tmp_path: Path
) -> None:
    kind, folder = STORES["audit store"], tmp_path / "copy"
    shutil.copytree(killed["audit store"], folder)
    kind.open(folder)
    old = seal_path(folder / kind.file)
    assert old.exists()
    old.unlink()
    kind.open(folder)
    assert old.exists()


@pytest.fixture
def rows_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every store a large one, and fail a test in which the rows of one are checked."""
    monkeypatch.setattr(store_check, "is_large", lambda _: True)
    monkeypatch.setattr(
        store_check, "_damaged_places", lambda _: pytest.fail("the rows were checked")
    )


@pytest.mark.usefixtures("rows_unread")
def test_a_store_has_its_seal_from_the_beginning(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 's.db'}"
    for _ in range(3):
        store = RegistryStore(address)
        for _ in range(5):
            with store.write():
                pass
        store.close()


@pytest.mark.parametrize("name", ["registry store", "audit store"])
def test_the_log_of_a_killed_program_is_sealed_by_the_next(
    killed: dict[str, Path], tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    kind, folder = STORES[name], tmp_path / "copy"
    shutil.copytree(killed[name], folder)
    assert log_path(folder / kind.file).stat().st_size
    request.getfixturevalue("rows_unread")
    for _ in range(3):
        kind.open(folder)
