"""`headworks schema`: the gate (check, lint, diff) and subjects (register, list, show).

The work is done in `ci` and `headworks`; this module only takes arguments and prints.
"""

from __future__ import annotations

import json
import sys
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.output import Format, FormatOption, print_json, print_table, say
from headworks.errors import FindingsError, UsageError
from headworks.settings import FILE_NAME, resolve

if TYPE_CHECKING:
    from ci.gate import Verdict
    from headworks.registry_client import RegistryClient, SubjectVersion
    from headworks.schema import Schema

__all__ = ["schema_app"]

schema_app = typer.Typer(
    no_args_is_help=True,
    help="Check schemas before they are merged, and register them.",
    rich_markup_mode=None,
)


class ReportFormat(StrEnum):
    """The forms of a verdict."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    JUNIT = "junit"
    SARIF = "sarif"
    GITLAB = "gitlab"
    MARKDOWN = "markdown"


SchemasArgument = Annotated[
    str | None, typer.Argument(help="folder of .avsc files, or one file", show_default="schemas")
]
RegistryOption = Annotated[
    str | None, typer.Option("--registry", help="URL of the schema registry")
]
ReportOption = Annotated[
    ReportFormat, typer.Option("--format", help="for people, or for the tool that shows it")
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", help="write the report to this file")
]


@schema_app.command()
def check(
    schemas: SchemasArgument = None,
    against: Annotated[
        list[str] | None,
        typer.Option(help="git:REF, registry:URL, or registry for the configured one; repeatable"),
    ] = None,
    form: ReportOption = ReportFormat.TEXT,
    output: OutputOption = None,
) -> None:
    """Would this change break a reader? Exit 1 if so, 3 if a registry does not answer."""
    from ci.gate import check as run_check

    folder = Path(resolve("schemas", schemas))
    bases = [_with_address(base) for base in against or _bases_from_settings()]
    _report(run_check(folder, bases), form, output)


@schema_app.command()
def lint(
    schemas: SchemasArgument = None,
    form: ReportOption = ReportFormat.TEXT,
    output: OutputOption = None,
) -> None:
    """Find what will be regretted: missing docs, bad names, no event time. Exit 1 if any."""
    from ci.lint import lint_catalogue

    _report(lint_catalogue(Path(resolve("schemas", schemas))), form, output)


@schema_app.command()
def diff(
    old: Annotated[str, typer.Argument(help="a file, or SUBJECT:VERSION in the registry")],
    new: Annotated[str, typer.Argument(help="a file, or SUBJECT:VERSION in the registry")],
    registry: RegistryOption = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """What changed between two schemas, field by field. Exit 0 whatever it is."""
    from headworks.schema.difference import differences

    found = differences(_schema(old, registry), _schema(new, registry))
    if form is Format.JSON:
        print_json([one.as_dict() for one in found])
        return
    for one in found:
        sys.stdout.write(f"{one}\n")
    if not found:
        say("no difference")


@schema_app.command()
def register(
    schemas: SchemasArgument = None,
    everything: Annotated[
        bool, typer.Option("--all", help="every schema of the folder, not one file")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="ask, and write nothing")] = False,
    registry: RegistryOption = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Register schemas with their level and policy from governance.toml. Exit 1 if refused."""
    from ci.registering import register as run_register

    path = Path(resolve("schemas", schemas))
    if path.is_dir() and not everything:
        raise UsageError(
            f"{path} is a folder", fix="give --all to register every schema in it, or name a file"
        )
    outcomes = list(run_register(path, _client(registry), dry_run=dry_run))
    if form is Format.JSON:
        print_json([one.as_dict() for one in outcomes])
    else:
        print_table(
            ("subject", "result", "version", "id"),
            [(one.subject, one.result, one.version or "", one.id or "") for one in outcomes],
        )
        for one in outcomes:
            for finding in one.findings:
                say(f"{one.subject}: {finding.rule}: {finding.message}\n  fix: {finding.fix}")
    refused = [one.subject for one in outcomes if one.refused]
    if refused:
        raise FindingsError(
            f"the registry refuses {', '.join(refused)}",
            fix="headworks schema check --against registry:URL shows where and why",
        )


@schema_app.command("list")
def list_subjects(registry: RegistryOption = None, form: FormatOption = Format.TEXT) -> None:
    """The subjects of the registry, with their versions, level and policy."""
    client = _client(registry)
    rows = []
    for subject in client.subjects():
        latest = client.latest(subject)
        if latest is not None:
            held = client.compatibility(subject)
            level, policy = str(held.level), str(held.policy)
            rows.append((subject, len(client.versions(subject)), latest.version, level, policy))
    header = ("subject", "versions", "latest", "compatibility", "policy")
    if form is Format.JSON:
        print_json([dict(zip(header, row, strict=True)) for row in rows])
    else:
        print_table(header, rows)


@schema_app.command()
def show(
    subject: Annotated[str, typer.Argument(help="a subject, or SUBJECT:VERSION")],
    registry: RegistryOption = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """The schema of a subject: the latest version, or the one that is named."""
    found = _version(subject, _client(registry))
    if form is Format.JSON:
        print_json(
            {
                "subject": found.subject,
                "version": found.version,
                "id": found.id,
                "schema": json.loads(found.text),
            }
        )
    else:
        say(f"{found.subject}, version {found.version}, id {found.id}")
        sys.stdout.write(json.dumps(json.loads(found.text), indent=2, ensure_ascii=False) + "\n")


def _report(verdict: Verdict, form: ReportFormat, output: Path | None) -> None:
    from ci.machine import render

    text = render(verdict, form.value)
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")
        say(f"{verdict.verdict}: report written to {output}")
    sys.stdout.flush()
    if verdict.refused:
        raise typer.Exit(FindingsError.exit_code)


def _with_address(base: str) -> str:
    """`registry` alone is the registry of the settings."""
    return f"registry:{resolve('registry')}" if base == "registry" else base


def _bases_from_settings() -> list[str]:
    """The `[gate]` table of headworks.toml: `against = ["git:origin/main"]`."""
    try:
        content = tomllib.loads(Path(FILE_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{FILE_NAME} is not TOML: {error}") from None
    table = content.get("gate", {})
    against = table.get("against", []) if isinstance(table, dict) else None
    if not isinstance(against, list) or set(table) - {"against"}:
        raise UsageError(
            f"{FILE_NAME}: [gate] takes a list `against`, and nothing else",
            fix='against = ["git:origin/main"]',
        )
    return [str(one) for one in against]


def _client(registry: str | None) -> RegistryClient:
    from headworks.registry_client import RegistryClient

    return RegistryClient(resolve("registry", registry))


def _version(text: str, client: RegistryClient) -> SubjectVersion:
    subject, _, number = text.rpartition(":")
    if subject and number.isdigit():
        return client.version(subject, int(number))
    found = client.latest(text)
    if found is None:
        raise UsageError(
            f"{client.url} has no subject {text!r}", fix="headworks schema list shows the subjects"
        )
    return found


def _schema(text: str, registry: str | None) -> Schema:
    from headworks.schema import parse

    if text.endswith(".avsc") or Path(text).is_file():
        from ci.catalogue import Catalogue, read_folder

        path = Path(text)
        if not path.is_file():
            raise UsageError(f"{text} does not exist")
        one = Catalogue(read_folder(path.parent)).file(path.as_posix())
        if one.schema is None:
            raise one.error or UsageError(f"{text} cannot be read")
        return one.schema
    return parse(_version(text, _client(registry)).text, strict=False)
