"""`headworks load run` around a warehouse: what it waits for, and what it tells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import cli.load
from cli.output import Format
from cli.warehouse import print_report
from hadoop_loader import LoadReport
from headworks.errors import UnreachableError


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
    monkeypatch.setattr(cli.load, "open_warehouse", lambda config: warehouse)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(UnreachableError, match="nothing is served any more"):
        cli.load.run(data_dir=str(tmp_path), serve="127.0.0.1:1")
    assert (warehouse.looks, warehouse.closed) == ([], True)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("load", "load 7: 0 rows; "), ("rewind", "rewind 7: 0 rows more than before; ")],
)
def test_what_puts_rows_in_the_place_of_others_tells_the_difference(
    kind: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_report(LoadReport(7, kind=kind, committed=True), Format.TEXT)
    assert words in capsys.readouterr().err
