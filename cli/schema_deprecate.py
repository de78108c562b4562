"""`headworks schema deprecate`: mark a version of a subject as deprecated."""

from __future__ import annotations

from typing import Annotated

import typer

from headworks._cli.options import RegistryOption
from headworks._cli.output import print_status
from headworks._cli.schema_usage import SubjectArgument
from headworks._settings import resolve
from headworks.errors import UsageError


def deprecate(
    subject: SubjectArgument,
    version: Annotated[int, typer.Argument(metavar="VERSION", help="its number")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="why, and what to use instead")] = "",
    undo: Annotated[bool, typer.Option("--undo", help="mark it no longer")] = False,
    registry: RegistryOption = None,
) -> None:
    """Mark a version as deprecated; `schema usage` and the console list who still uses it."""
    from headworks.registry_client import RegistryClient

    if bool(reason.strip()) == undo:
        raise UsageError("give either --reason or --undo", fix='--reason "use version 3"')
    client = RegistryClient(resolve("registry", registry))
    client.version(subject, version, deleted=True)
    before = client.deprecated_versions(subject)
    after = {number: why for number, why in before.items() if number != version}
    if not undo:
        after[version] = reason.strip()
    client.deprecate(subject, after)
    if client.deprecated_versions(subject) != after:
        raise UsageError(
            f"{client.url} does not keep deprecated versions",
            fix="use the registry of Headworks, or register the version with the metadata property "
            "`deprecated`",
        )
    told = "is no longer deprecated" if undo else f"is deprecated: {after[version]}"
    print_status(f"version {version} of {subject} {told}")
