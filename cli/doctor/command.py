"""`headworks doctor`: check this machine, and print each finding with its fix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headworks._cli.options import DataDirOption
from headworks._cli.output import Format, FormatOption, print_json
from headworks.errors import FindingsError

if TYPE_CHECKING:
    from headworks._cli.doctor.diagnosis import Diagnosis


def doctor(data_dir: DataDirOption = None, format: FormatOption = Format.TEXT) -> None:
    """Check installation, machine, ports, and servers. Exit 1 if something will fail."""
    from headworks._cli.doctor.diagnosis import problems

    findings: list[Diagnosis] = []
    for found in _checks(data_dir):
        findings.append(found)
        if format is Format.TEXT:
            _print(found)
    if format is Format.JSON:
        print_json([found.as_json() for found in findings])
    count = problems(findings)
    if count:
        raise FindingsError(
            f"{count} of {len(findings)} checks found a problem", fix="follow the fixes above"
        )


def _checks(data_dir: str | None) -> Iterator[Diagnosis]:
    """Run the checks; those that need the settings are skipped if the settings cannot be read."""
    from headworks._cli.doctor.installation import installation, settings_file
    from headworks._cli.doctor.machine import machine
    from headworks._cli.doctor.services import services
    from headworks._settings import resolve

    yield from installation()
    settings = settings_file()
    yield settings
    if settings.fix is None:
        yield from machine(Path(resolve("data_dir", data_dir)))
        yield from services()


def _print(found: Diagnosis) -> None:
    mark = " " if found.fix is None else "!"
    print(f"{mark} {found.severity.value:<8} {found.subject}: {found.text}")
    if found.fix is not None:
        print(f"{'':<11}fix: {found.fix}")
