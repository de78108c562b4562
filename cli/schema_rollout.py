"""`headworks schema rollout`: whom to move to a version first, and when the next step is safe."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.audit_store import AuditOptions
from headworks._cli.option_groups import expand_groups
from headworks._cli.output import Format, FormatOption, print_json, print_status, print_table
from headworks._cli.schema_usage import SubjectArgument, print_way_to_be_known, usage_of
from headworks._cli.times import format_instant, parse_duration_ms
from headworks.errors import UsageError

if TYPE_CHECKING:
    from headworks._ci.rollout import Rollout


@expand_groups
def rollout(
    source: AuditOptions,
    subject: SubjectArgument,
    version: Annotated[
        int | None, typer.Option(help="move to this version (default: the latest)")
    ] = None,
    within: Annotated[
        str, typer.Option(help="ignore programs that used nothing for this long")
    ] = "30d",
    form: FormatOption = Format.TEXT,
) -> None:
    """Show whom to move to a version first, who still uses an older one, and what is safe now."""
    from headworks._ci.rollout import rollout as plan
    from headworks.compatibility import Version
    from headworks.registry_client import RegistryClient
    from headworks.schema import parse

    since = time.time_ns() // 1_000_000 - parse_duration_ms("--within", within, zero=False)
    usage = usage_of(source, subject)
    client = RegistryClient(source.registry_url)
    numbers = {one.version: one.id for one in usage.versions}
    target = max(client.versions(subject), default=0) if version is None else version
    if target not in numbers:
        raise UsageError(
            f"{subject} has no version {target}",
            fix=f"it has {', '.join(map(str, sorted(numbers)))}",
        )
    schemas = [
        Version(number, parse(client.schema_text(schema_id, subject), strict=False))
        for number, schema_id in numbers.items()
    ]
    found = plan(usage, schemas, client.compatibility(subject).level, target, after=since)
    if form is Format.JSON:
        print_json(found.as_dict(format_instant))
    else:
        _print(found)
        if usage.unknown_readers:
            print_way_to_be_known()


def _print(found: Rollout) -> None:
    state = "done" if found.is_done else f"order: {found.order}"
    print_status(f"{found.subject} to version {found.version} (level {found.level}): {state}")
    rows: list[tuple[object, ...]] = []
    for number, step in enumerate(found.steps, 1):
        state = "done" if step.is_done else "safe now" if step.is_safe else "wait"
        rows.append((number, step.what, state, "", ""))
        for one in step.programs:
            name = f"{one.name}, which would break" if one.breaks else one.name
            at = format_instant(one.last_used)
            rows.append(("", name, f"on version {one.version}", ", ".join(one.hosts), at))
        rows += [("", reason, "holds it up", "", "") for reason in step.waits_for]
    header = ("step", "who", "state", "hosts", "last used")
    print_table(header, rows)
