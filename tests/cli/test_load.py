"""`headworks load run` around a warehouse: what it waits for, and what it tells."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from hadoop_loader import LoadReport
from hadoop_loader._commit.report import CompactionReport
from hadoop_loader._operations.metrics import LoaderMetrics
from headworks._cli import load
from headworks._cli.main import run
from headworks._cli.output import Format
from headworks._cli.warehouse_options import print_report, warehouse_folder
from headworks.errors import UnreachableError

pytestmark = pytest.mark.unit


class Dying:
    """A warehouse whose JVM is killed after a look or two."""

    def __init__(self) -> None:
        self.looks = [True, True, False]
        self.closed = False

    def serve(self, host: str, port: int) -> tuple[str, int]:
        return host, port

    def load(self, progress: Callable[[str, float | None], None] | None) -> LoadReport:
        return LoadReport(1)

    def alive(self) -> bool:
        return self.looks.pop(0)

    def close(self) -> None:
        self.closed = True


def test_who_serves_and_has_lost_its_jvm_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = Dying()
    monkeypatch.setattr(load, "open_warehouse", lambda config: warehouse)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(UnreachableError, match="nothing is served any more"):
        load.run(data_dir=str(tmp_path), serve="127.0.0.1:1")
    assert (warehouse.looks, warehouse.closed) == ([], True)


def test_a_single_run_that_fails_is_in_its_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Dying):
        def load(self, progress: Callable[[str, float | None], None] | None) -> LoadReport:
            raise UnreachableError("no schema registry answers")

    monkeypatch.setattr(load, "open_warehouse", lambda config: Failing())
    file = tmp_path / "loader.prom"
    with pytest.raises(UnreachableError, match="no schema registry answers"):
        load.run(data_dir=str(tmp_path), metrics_file=file)
    assert 'headworks_loader_runs_total{outcome="failed"} 1.0' in file.read_text()


def test_a_load_tells_of_its_compaction(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = LoadReport(7, committed=True, compacted=CompactionReport(8, 2, 40, 3, 1.25))
    print_report(report, Format.TEXT)
    assert "compacted 2 partitions: 40 files became 3; seconds: 1.2" in capsys.readouterr().err
    metrics = LoaderMetrics(tmp_path)
    metrics.loaded(report)
    metrics.write(tmp_path / "m.prom")
    assert 'phase_seconds{phase="compact"} 1.25' in (tmp_path / "m.prom").read_text()


def test_a_topic_without_a_schema_names_the_command_that_registers_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_report(LoadReport(7, ungoverned=("clicks", "headworks.audit")), Format.TEXT)
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if "clicks" in line and "register clicks-value" in line]
    assert [line for line in said if "headworks.audit" in line and "register --bundled" in line]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("load", "load 7: 0 rows; "),
        ("rewind", "rewind 7: 0 rows more than before; "),
        ("rebuild", "rebuild 7: all rows are in the latest schema; "),
    ],
)
def test_what_puts_rows_in_the_place_of_others_tells_the_difference(
    kind: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_report(LoadReport(7, kind=kind, committed=True), Format.TEXT)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("listen", ["0.0.0.0:9400", "[::]:9400", "192.0.2.1:9400"])
def test_metrics_that_other_machines_can_reach_are_refused_before_anything_starts(
    listen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(load, "open_warehouse", lambda config: pytest.fail("it was opened"))
    command = ["load", "run", "--data-dir", str(tmp_path), "--metrics", listen]
    monkeypatch.setattr("sys.argv", ["headworks", *command])
    with pytest.raises(SystemExit) as stopped:
        run()
    told = capfd.readouterr().err
    assert stopped.value.code == 2
    assert "the metrics page would not authenticate clients" in told
    assert "pass --insecure if the network is trusted" in told
    assert not list(tmp_path.iterdir())


@pytest.mark.contract
def test_metrics_are_served_to_other_machines_if_the_network_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages: list[str] = []

    class Scraped(Dying):
        def load(self, progress: Callable[[str, float | None], None] | None) -> LoadReport:
            port = capsys.readouterr().err.partition("http://0.0.0.0:")[2].partition("/")[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                pages.append(answer.read().decode())
            return LoadReport(1)

    monkeypatch.setattr(load, "open_warehouse", lambda config: Scraped())
    monkeypatch.setattr("hadoop_loader._spark.session.prepare_class_archive", lambda: None)
    load.run(data_dir=str(tmp_path), metrics="0.0.0.0:0", insecure=True)
    assert "headworks_loader_runs_total" in pages[0]


def test_data_dir_moves_the_default_of_the_warehouse_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADWORKS_WAREHOUSE", raising=False)
    assert warehouse_folder("d", None) == "d/warehouse"
    assert warehouse_folder("d", "w") == "w"
    monkeypatch.setenv("HEADWORKS_WAREHOUSE", "hdfs://h/w")
    assert warehouse_folder("d", None) == "hdfs://h/w"
    assert warehouse_folder(None, None) == "hdfs://h/w"
