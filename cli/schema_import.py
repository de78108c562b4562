"""`headworks schema import`: copy a whole registry into ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.options import RegistryOption
from headworks._cli.output import Format, FormatOption, print_json, print_status
from headworks._cli.progress_lines import ProgressLines
from headworks._settings import resolve
from headworks.errors import FindingsError

if TYPE_CHECKING:
    from headworks._ci.registry_import import ImportResult

_MAX_SHOWN = 20


def import_registry(
    source: Annotated[
        str,
        typer.Option(
            "--from",
            help="the registry to copy: http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT",
        ),
    ],
    standby: Annotated[
        bool, typer.Option("--standby", help="stay in mode IMPORT, for a further import")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show what is missing, and write nothing")
    ] = False,
    registry: RegistryOption = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Copy all subjects, ids, versions, and settings of a registry. Exit 1 if they still differ.

    Run it again after an interruption: it continues with what is missing.
    """
    from headworks._ci.registry_import import import_registry as run_import
    from headworks.registry_client import RegistryClient

    # The user of the settings is one of the target, and no business of another registry.
    theirs = RegistryClient(source, username=None if "@" in source else "")
    ours = RegistryClient(resolve("registry", registry))
    with ProgressLines("reading both registries") as lines:
        found = run_import(theirs, ours, standby=standby, dry_run=dry_run, progress=lines.show)
    if form is Format.JSON:
        print_json(found.as_dict())
    else:
        _print(found, dry_run=dry_run)
    if dry_run or found.is_equal:
        return
    named = "; ".join((found.refused or tuple(map(str, found.differences)))[:_MAX_SHOWN])
    if found.refused:
        raise FindingsError(
            f"{ours.url} is not equal to {theirs.url}, and stays in mode IMPORT: {named}",
            fix="correct the refused versions at the source, and run the command again; or open"
            f' the target without them: PUT {ours.url}/mode with {{"mode": "READWRITE"}}',
        )
    raise FindingsError(
        f"{ours.url} is not equal to {theirs.url}: {named}",
        fix="the source has changed during the import: run the command again",
    )


def _print(found: ImportResult, *, dry_run: bool) -> None:
    plan, source = found.plan, found.source
    contexts = len({one.subject.context for one in source.versions.values()})
    verb = "would import" if dry_run else "imported"
    print_status(
        f"source: {len(source.versions):,} versions of {len(source.subjects):,} subjects"
        f" in {contexts:,} context{'s' * (contexts != 1)}"
    )
    print_status(
        f"{verb}: {len(plan.versions):,} versions, {len(plan.deletions):,} soft deletions,"
        f" {len(plan.configs):,} settings, {len(plan.modes):,} modes"
    )
    if not dry_run and found.is_equal:
        print_status("both registries were read again, and are equal")
