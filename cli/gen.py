"""`headworks gen SCHEMAS --out PACKAGE`: generate typed classes from `.avsc` files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headworks._cli.options import RegistryOption
from headworks._cli.output import Format, FormatOption, number_of, print_json, print_status
from headworks._settings import resolve
from headworks.errors import FindingsError, UsageError


def gen(
    schemas: Annotated[
        list[Path] | None, typer.Argument(help="folders or .avsc files (setting schemas)")
    ] = None,
    out: Annotated[Path, typer.Option(help="write the package to this folder")] = Path("events"),
    check: Annotated[
        bool, typer.Option("--check", help="write nothing, and exit 1 if a file would change")
    ] = False,
    lock: Annotated[
        bool, typer.Option("--lock", help="also write schemas.lock with the registry's ids")
    ] = False,
    registry: RegistryOption = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Write one module per namespace, or check that the modules are up to date (for CI)."""
    from headworks.registry_client import RegistryClient
    from headworks.registry_client._schema_lock import FILE_NAME, lock_of, read_lock
    from producer_sdk._generator.package import events, generate, replace, stale, write

    sources = schemas or [Path(resolve("schemas"))]
    package = out.absolute().name  # also of "."
    if not package.isidentifier():
        raise UsageError(
            f"{package!r} cannot be the name of a Python package",
            fix="give --out a folder whose name is letters, digits and underscores",
        )
    files = generate(sources)
    if check:
        changed = stale(files, out)
        locked = read_lock(out / FILE_NAME)
        if locked is not None and not locked.covers(events(sources)):
            changed.append(out / FILE_NAME)
    else:
        changed = write(files, out)
        if lock:
            client = RegistryClient(resolve("registry", registry))
            new, before = lock_of(events(sources), client), read_lock(out / FILE_NAME)
            text = (before.with_registry_of(new) if before else new).text()
            changed += replace(out / FILE_NAME, text)
    if format is Format.JSON:
        print_json(
            {"package": str(out), "files": sorted(files), "changed": [str(p) for p in changed]}
        )
    else:
        for path in changed:
            print_status(f"{'stale' if check else 'wrote'} {path}")
        count = number_of(len(files), "file")
        print_status(f"{out}: {count}, {len(changed)} {'stale' if check else 'changed'}")
    if check and changed:
        raise FindingsError(
            f"{len(changed)} generated files are not what the schemas say: "
            + ", ".join(str(path) for path in changed),
            fix=f"headworks gen {' '.join(map(str, sources))} --out {out}"
            + (" --lock" if out / FILE_NAME in changed else ""),
        )
