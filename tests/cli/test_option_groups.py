"""Groups of options become options, durations are read one way, and metrics stay on loopback."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from headworks._cli.audit_run import run as audit_run
from headworks._cli.option_groups import expand_groups
from headworks._cli.times import parse_duration_ms
from headworks.errors import UsageError

pytestmark = pytest.mark.unit


@dataclass(frozen=True, slots=True)
class Sizes:
    width: Annotated[int, typer.Option(min=1, help="width in cm")] = 10
    height: Annotated[int | None, typer.Option("--tall", help="height in cm")] = None


def test_the_fields_of_a_group_are_options_beside_others() -> None:
    calls: list[tuple[Sizes, str, bool]] = []

    @expand_groups
    def paint(
        sizes: Sizes,
        color: Annotated[str, typer.Argument(help="the color")],
        wet: Annotated[bool, typer.Option("--wet", help="leave it wet")] = False,
    ) -> None:
        calls.append((sizes, color, wet))

    app = typer.Typer()
    app.command()(paint)
    runner = CliRunner()
    assert runner.invoke(app, ["red", "--tall", "3", "--wet"]).exit_code == 0
    assert runner.invoke(app, ["red", "--width", "0"]).exit_code == 2
    paint(color="blue", width=4)
    assert calls == [(Sizes(10, 3), "red", True), (Sizes(4, None), "blue", False)]


@pytest.mark.parametrize(
    ("text", "ms"), [("30s", 30_000), ("10m", 600_000), ("2h", 7_200_000), ("14d", 1_209_600_000)]
)
def test_a_duration_has_a_unit(text: str, ms: int) -> None:
    assert parse_duration_ms("--every", text) == ms


@pytest.mark.parametrize("text", ["10", "m", "1.5h", "-1s", "2w", "soon", "0s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"--every '{text}' is not a duration"):
        parse_duration_ms("--every", text, zero=False)


def test_the_audit_shows_its_metrics_beyond_loopback_only_if_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headworks._server.child_process.end_with_parent", lambda: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    store = f"sqlite:///{tmp_path / 'audit.db'}"
    with pytest.raises(UsageError, match="metrics page"):
        audit_run(metrics="0.0.0.0:0", store=store)
