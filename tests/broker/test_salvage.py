"""Whatever is damaged in a log, its intact batches are found and served again at their offsets."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from headworks._broker.log import LogConfig, PartitionLog, open_log
from headworks._broker.log.dump import DumpedBatch, dump_segment, segments_of
from headworks._broker.log.repair import repair
from headworks._broker.log.salvage import salvage_folder
from headworks._broker.server.folder_lock import FolderLock
from headworks._cli.log import log_app
from headworks._kafka.records import check_batch
from headworks.errors import FindingsError, UsageError
from tests.broker.build import batch

pytestmark = pytest.mark.unit

CONFIG = LogConfig(segment_bytes=1500)
_CRC_FROM = 17  # of a batch: the fields before it can be rebuilt


def filled(folder: Path, counts: list[int]) -> PartitionLog:
    log, _ = open_log(folder, CONFIG)
    for number, count in enumerate(counts):
        data = batch(count, size=20 + number % 7 * 15, timestamp=number)
        log.stage(memoryview(data), check_batch(data))
        log.commit()
    log.close()
    return log


def batches(folder: Path) -> dict[int, bytes]:
    """All valid batches of a folder, by base offset."""
    found = {}
    for path in segments_of(folder):
        data = path.read_bytes()
        for item in dump_segment(path):
            assert isinstance(item, DumpedBatch), item
            at = item.batch
            found[at.base_offset] = data[at.position : at.position + at.size]
    return found


def reopened(folder: Path) -> dict[int, bytes]:
    """Open and close the log, and return its batches."""
    log, recovery = open_log(folder, CONFIG)
    assert recovery.cut_bytes == 0
    end = log.log_end_offset
    new = batch(1)
    assert log.stage(memoryview(new), check_batch(new)) == end
    log.commit()
    for base in (found := batches(folder)):
        log.mark_flushed(log.sync())
        assert log.read(base, 1).size == len(found[base])
    log.close()
    del found[end]
    return found


@pytest.mark.seconds
@settings(max_examples=120, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=8, max_size=40), st.data())
def test_one_wrong_byte_costs_at_most_its_batch(counts: list[int], data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name) / "t-0"
        end = filled(folder, counts).log_end_offset
        whole = batches(folder)
        path = data.draw(st.sampled_from(segments_of(folder)), label="segment")
        content = bytearray(path.read_bytes())
        if not content:
            return
        at = data.draw(st.integers(0, len(content) - 1), label="byte")
        hit = max(
            (item.batch for item in dump_segment(path) if isinstance(item, DumpedBatch)),
            key=lambda one: (one.position <= at, one.position if one.position <= at else 0),
        )
        content[at] ^= data.draw(st.integers(1, 255), label="bits")
        path.write_bytes(content)
        found, damaged = repair(folder)
        assert found.damaged
        assert (damaged / path.name).read_bytes() == content
        if at - hit.position >= _CRC_FROM:
            del whole[hit.base_offset]
            assert found.lost == ((hit.base_offset, hit.last_offset + 1),)
        else:
            assert found.lost == ()
        assert reopened(folder) == whole
        log, _ = open_log(folder, CONFIG)
        assert log.log_end_offset == end + 1
        log.close()


def _cut(paths: list[Path]) -> None:
    paths[1].write_bytes(paths[1].read_bytes()[:-30])


def _cut_newest(paths: list[Path]) -> None:
    paths[-1].write_bytes(paths[-1].read_bytes()[:-1])


def _empty(paths: list[Path]) -> None:
    paths[1].write_bytes(b"")


def _remove(paths: list[Path]) -> None:
    paths[1].unlink()


def _remove_newest(paths: list[Path]) -> None:
    paths[-1].unlink()


def _swap(paths: list[Path]) -> None:
    first, second = paths[1].read_bytes(), paths[2].read_bytes()
    paths[1].write_bytes(second)
    paths[2].write_bytes(first)


def _copy_over(paths: list[Path]) -> None:
    shutil.copy(paths[1], paths[2])


def _noise(paths: list[Path]) -> None:
    data = paths[1].read_bytes()
    middle = len(data) // 2
    paths[1].write_bytes(data[:middle] + b"noise" * 7 + data[middle:])


def _list(paths: list[Path]) -> None:
    (paths[0].parent / "compacted").write_text("noise")


def _point(paths: list[Path]) -> None:
    (paths[0].parent / "recovery-point").write_text("noise")


@pytest.mark.parametrize(
    "damage",
    [_cut, _cut_newest, _empty, _remove, _remove_newest, _swap, _copy_over, _noise, _list, _point],
)
def test_every_batch_that_is_whole_somewhere_is_served_again(
    tmp_path: Path, damage: Callable[[list[Path]], None]
) -> None:
    folder = tmp_path / "t-0"
    end = filled(folder, [1, 2, 3] * 12).log_end_offset
    paths = [path for path in segments_of(folder) if path.stat().st_size]
    assert len(paths) > 3
    whole = batches(folder)
    damage(paths)
    left = b"\0".join(path.read_bytes() for path in paths if path.exists())
    expected = {base: data for base, data in whole.items() if data in left}
    found, _ = repair(folder)
    assert reopened(folder) == expected
    lost = sum(last - first for first, last in found.lost)
    gone = [check_batch(data) for base, data in whole.items() if base not in expected]
    assert lost == sum(one.record_count for one in gone)
    log, _ = open_log(folder, CONFIG)
    assert log.log_end_offset == end + 1
    log.close()


def test_a_whole_log_has_nothing_to_salvage(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    filled(folder, [1, 2, 3] * 12)
    found = salvage_folder(folder)
    assert (found.damaged, found.lost, found.state_damage) == ((), (), "")


def test_the_command_shows_repairs_and_then_finds_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    filled(folder, [2] * 30)
    path = segments_of(folder)[1]
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    base = int(path.stem)
    shown = CliRunner().invoke(log_app, ["salvage", str(folder), "--records"])
    assert isinstance(shown.exception, FindingsError)
    assert "--repair" in str(shown.exception)
    assert f"{path.name} @0: DAMAGED" in shown.output
    assert f"LOST: offsets {base}..{base + 1}" in shown.output
    assert shown.output.count("key=b'k0'") == 29
    repaired = CliRunner().invoke(log_app, ["salvage", str(folder), "--repair", "--format", "json"])
    assert repaired.exit_code == 0
    assert f'{{"lost_first_offset": {base}, "lost_last_offset": {base + 1}}}' in repaired.output
    again = CliRunner().invoke(log_app, ["salvage", str(folder)])
    assert again.exit_code == 0, again.output
    assert CliRunner().invoke(log_app, ["dump", str(folder)]).exit_code == 0


def test_a_file_that_recovery_cut_shows_what_is_intact_in_it(tmp_path: Path) -> None:
    file = tmp_path / "00000000000000000000-17-5.cut"
    file.write_bytes(b"torn" + batch(1, at=8) + batch(2, at=9) + b"torn")
    shown = CliRunner().invoke(log_app, ["salvage", str(file), "--records"])
    assert shown.exit_code == 1
    assert f"{file.name} @4: intact offsets 8..10" in shown.output
    assert shown.output.count("key=") == 3


def test_a_running_broker_keeps_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "t-0"
    filled(folder, [2] * 30)
    lock = FolderLock(tmp_path)
    (tmp_path / "lock").unlink()
    refused = CliRunner().invoke(log_app, ["salvage", str(folder), "--repair"])
    assert isinstance(refused.exception, UsageError)
    assert "in use by another broker" in str(refused.exception)
    lock.release()


@pytest.mark.parametrize("options", [[], ["--repair"]])
def test_a_folder_that_is_no_partition_is_refused_and_kept(
    tmp_path: Path, options: list[str]
) -> None:
    filled(tmp_path / "data" / "t-0", [2])
    refused = CliRunner().invoke(log_app, ["salvage", str(tmp_path / "data"), *options])
    assert isinstance(refused.exception, UsageError)
    assert f"{tmp_path}/data is not the folder of a partition" in str(refused.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    (tmp_path / "data" / "t-0").rename(tmp_path / "copy")
    assert CliRunner().invoke(log_app, ["salvage", str(tmp_path / "copy")]).exit_code == 0
