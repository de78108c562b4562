"""The calls that macOS lacks, and what runs in their place."""

from __future__ import annotations

import errno
import fcntl
import importlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from confluent_kafka import Producer, TopicPartition

from headworks import _system_calls
from headworks._kafka.clients import KafkaConsumer
from headworks._server import child_process
from tests.as_on_macos.sitecustomize import FULL_SYNC, MISSING
from tests.test_architecture import PARTS
from tests.waiting import until

pytestmark = pytest.mark.unit

_ELSEWHERE = re.compile(
    r"os\.(f(data)?sync|sendfile|posix_f\w+)\(|socket\.(MSG_MORE|TCP_KEEP)|fcntl\.F_FULL|[\"']/proc"
)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module as a system without any of the calls imports it."""
    for module, names in MISSING.items():
        for name in names:
            monkeypatch.delattr(module, name, raising=False)
    for name in ("TCP_KEEPALIVE", "TCP_KEEPINTVL", "TCP_KEEPCNT"):
        monkeypatch.delattr(socket, name, raising=False)
    monkeypatch.delattr(fcntl, "F_FULLFSYNC", raising=False)
    yield importlib.reload(_system_calls)
    monkeypatch.undo()
    importlib.reload(_system_calls)


def test_no_other_module_names_them(root: Path) -> None:
    ours = {root / part for part in PARTS}
    modules = {path for part in ours for path in part.rglob("*.py")}
    modules -= {Path(_system_calls.__file__)}
    found = [
        f"{path}: {match[0]}"
        for path in modules
        for match in _ELSEWHERE.finditer(path.read_text(encoding="utf-8"))
    ]
    assert modules
    assert not found


def test_without_them_files_are_synced_all_the_same(
    bare: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    bare.sync(3)
    bare.sync_data(4)
    assert synced == [3, 4]


def test_without_them_a_file_has_its_bytes_and_keeps_those_that_it_had(
    bare: ModuleType, tmp_path: Path
) -> None:
    with (tmp_path / "words").open("w+b") as file:
        file.write(b"counted")
        file.flush()
        for size in (3, 200_000):
            bare.reserve(file.fileno(), size)
        written = os.fstat(file.fileno())
        bare.drop_cached(file.fileno(), 0, 1)
        assert (tmp_path / "words").read_bytes() == b"counted".ljust(200_000, b"\0")
    assert written.st_blocks * 512 >= 200_000


def test_without_them_no_option_of_the_system_is_asked_for(bare: ModuleType) -> None:
    assert (bare.MSG_MORE, bare.SENDS_FILES) == (0, False)
    assert bare.keepalive_options(60, 15, 4) == ((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),)


def test_dead_peers_are_probed_for() -> None:
    values = [value for _, _, value in _system_calls.keepalive_options(60, 15, 4)]
    assert values == [1, 60, 15, 4]
    with socket.socket() as sock:
        for option in _system_calls.keepalive_options(60, 15, 4):
            sock.setsockopt(*option)
            assert sock.getsockopt(*option[:2]) == option[2]


@pytest.mark.parametrize("code", [0, errno.ENOTSUP, errno.EIO])
def test_macos_flushes_past_the_cache_of_the_disk(
    bare: ModuleType, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A file system without F_FULLFSYNC gets fsync; a disk that fails is an error, with neither."""
    calls: list[str] = []

    def full_sync(fd: int, command: int) -> int:
        assert command == FULL_SYNC
        calls.append(f"full {fd}")
        if code:
            raise OSError(code, os.strerror(code))
        return 0

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", FULL_SYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", full_sync)
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append(f"plain {fd}"))
    monkeypatch.setattr(os, "fdatasync", lambda fd: calls.append("data"), raising=False)
    portable = importlib.reload(bare)
    if code == errno.EIO:
        for call in (portable.sync, portable.sync_data):
            with pytest.raises(OSError, match="Input/output"):
                call(3)
        assert calls == ["full 3", "full 3"]
        return
    portable.sync(3)
    portable.sync_data(4)
    plain = code == errno.ENOTSUP
    assert calls == ["full 3", *["plain 3"] * plain, "full 4", *["plain 4"] * plain]


@pytest.mark.e2e
def test_a_broker_works_as_on_macos(root: Path, tmp_path: Path) -> None:
    """Acknowledged by F_FULLFSYNC, and fetched without sendfile."""
    with child_process.start(
        ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)],
        env={"PYTHONPATH": str(root / "tests/as_on_macos")},
    ) as running:
        producer = Producer({"bootstrap.servers": running.address})
        values = [b"%d" % n * 10_000 for n in range(100)]
        for value in values:
            producer.produce("t", value, partition=0)
        assert producer.flush(60) == 0
        reader = KafkaConsumer({"bootstrap.servers": running.address, "group.id": "g"})
        reader.assign([TopicPartition("t", 0, 0)])
        found: list[bytes] = []

        def all_read() -> bool:
            found.extend(message.value() or b"" for message in reader.consume(100, 1))
            return len(found) == len(values)

        until(all_read)
        reader.close()
    assert found == values
