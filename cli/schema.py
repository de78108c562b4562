"""`headworks schema`: the gate (check, lint, diff) and subjects (register, adopt, list,
show).

`ci` and `headworks` do the work; this module only reads arguments and prints.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.options import RegistryOption
from headworks._cli.output import (
    Format,
    FormatOption,
    print_json,
    print_rows,
    print_status,
    print_table,
)
from headworks._cli.schema_deprecate import deprecate
from headworks._cli.schema_import import import_registry
from headworks._cli.schema_rollout import rollout
from headworks._cli.schema_usage import usage as show_usage
from headworks._cli.schema_usage import usage_for_gate
from headworks._settings import FILE_NAME, resolve
from headworks.errors import FindingsError, UsageError

if TYPE_CHECKING:
    from headworks._ci.report import Style
    from headworks._ci.trial import MessageTrials
    from headworks._ci.verdict import Verdict
    from headworks.registry_client import RegistryClient, SubjectVersion
    from headworks.schema import Schema

schema_app = typer.Typer(
    no_args_is_help=True,
    help="Check schemas before they are merged, and register them.",
    rich_markup_mode=None,
)
schema_app.command("usage")(show_usage)
schema_app.command("rollout")(rollout)
schema_app.command("deprecate")(deprecate)
schema_app.command("import")(import_registry)


class ReportFormat(StrEnum):
    """The formats of a verdict."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    JUNIT = "junit"
    SARIF = "sarif"
    GITLAB = "gitlab"
    MARKDOWN = "markdown"


FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(help="folders of .avsc files, or files", show_default="schemas"),
]
SchemasArgument = Annotated[
    str | None, typer.Argument(help="folder of .avsc files, or one file", show_default="schemas")
]
ReportOption = Annotated[
    ReportFormat, typer.Option("--format", help="text for people, or the format of a tool")
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", help="write the report to this file")
]
ReportsOption = Annotated[
    list[str] | None,
    typer.Option("--report", help="also write the report as FORMAT=FILE; repeatable"),
]


@schema_app.command()
def check(
    schemas: FilesArgument = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="compare with git:REF, registry:URL, or registry (the configured one); repeatable"
        ),
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option(help="name the consumer groups of this broker, HOST:PORT")
    ] = None,
    waive: Annotated[
        list[str] | None,
        typer.Option(help="waive RULE, RULE:SUBJECT, or all in this run; repeatable"),
    ] = None,
    reason: Annotated[str, typer.Option(help="reason for --waive, shown in the report")] = "",
    usage: Annotated[
        str | None,
        typer.Option(help="ask this console who uses which version, or `none`"),
    ] = None,
    try_on: Annotated[
        int | None,
        typer.Option(
            "--try-on", min=1, max=10_000_000, help="try changes on this many messages of the topic"
        ),
    ] = None,
    form: ReportOption = ReportFormat.TEXT,
    output: OutputOption = None,
    reports: ReportsOption = None,
) -> None:
    """Check whether a change breaks a reader. Exit 1 if so, 3 if a registry does not answer."""
    from headworks._ci.gate import check as run_check
    from headworks._ci.governance import one_time_waivers
    from headworks._ci.settings import read_settings

    settings = read_settings(Path(FILE_NAME))
    baselines = [_with_address(base) for base in against or settings.against]
    servers = bootstrap or settings.bootstrap
    with usage_for_gate(usage or settings.usage) as ask_usage:
        verdict = run_check(
            _paths(schemas),
            baselines,
            home=Path(resolve("schemas")),
            bootstrap=servers,
            waive=one_time_waivers(waive or (), reason),
            usage=ask_usage,
            try_on=None if try_on is None else _trials(servers, baselines, try_on),
        )
    _report(verdict, form, output, reports or ())


@schema_app.command()
def lint(
    schemas: FilesArgument = None,
    form: ReportOption = ReportFormat.TEXT,
    output: OutputOption = None,
    reports: ReportsOption = None,
) -> None:
    """Find missing docs, bad names, and missing event times. Exit 1 if there are any."""
    from headworks._ci.lint import lint_catalog

    _report(
        lint_catalog(_paths(schemas), home=Path(resolve("schemas"))), form, output, reports or ()
    )


@schema_app.command()
def diff(
    old: Annotated[str, typer.Argument(help="file, or SUBJECT:VERSION in the registry")],
    new: Annotated[str, typer.Argument(help="file, or SUBJECT:VERSION in the registry")],
    registry: RegistryOption = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Show what changed between two schemas, field by field. Exit 0 in any case."""
    from headworks.schema._difference import differences

    found = differences(_schema(old, registry), _schema(new, registry))
    if form is Format.JSON:
        print_json([one.as_dict() for one in found])
        return
    for one in found:
        sys.stdout.write(f"{one}\n")
    if not found:
        print_status("no difference")


@schema_app.command()
def register(
    schemas: SchemasArgument = None,
    everything: Annotated[
        bool, typer.Option("--all", help="register every schema of the folder")
    ] = False,
    bundled: Annotated[
        bool,
        typer.Option("--bundled", help="register the schemas that Headworks itself needs"),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="ask the registry, and write nothing")
    ] = False,
    registry: RegistryOption = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Register schemas with their level and policy from governance.toml. Exit 1 if refused."""
    from headworks import _bundled_schemas
    from headworks._ci.deploy import register as run_register

    if bundled and schemas is not None:
        raise UsageError(
            f"--bundled registers other schemas than {schemas}", fix="run the command twice"
        )
    own = _bundled_schemas.folder() / "headworks"
    path = own if bundled else Path(resolve("schemas", schemas))
    if path.is_dir() and not (everything or bundled):
        raise UsageError(
            f"{path} is a folder", fix="give --all to register every schema in it, or name a file"
        )
    outcomes = list(run_register(path, _client(registry), dry_run=dry_run))
    if form is Format.JSON:
        print_json([one.as_dict() for one in outcomes])
    else:
        print_table(
            ("subject", "result", "version", "id", "level and policy"),
            [
                (one.subject, one.result, one.version or "", one.id or "", one.settings or "")
                for one in outcomes
            ],
        )
        for one in outcomes:
            if one.reason is not None:
                print_status(f"{one.subject}: {one.reason}")
            for finding in one.findings:
                print_status(
                    f"{one.subject}: {finding.rule}: {finding.message}\n  fix: {finding.fix}"
                )
    refused = [one.subject for one in outcomes if one.refused]
    if refused:
        raise FindingsError(
            f"the registry refuses {', '.join(refused)}",
            fix="headworks schema check --against registry:URL shows where and why",
        )


@schema_app.command()
def adopt(
    schemas: SchemasArgument = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show the subjects, and write nothing")
    ] = False,
    registry: RegistryOption = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Map the files of a catalog to the subjects that a registry has. Edits governance.toml."""
    from headworks._ci.adoption import adopt as run_adopt

    found = run_adopt(Path(resolve("schemas", schemas)), _client(registry), dry_run=dry_run)
    header = ("file", "subject", "result")
    print_rows(header, [(one.file, one.subject or "", one.result) for one in found], form)


@schema_app.command("list")
def list_subjects(registry: RegistryOption = None, form: FormatOption = Format.TEXT) -> None:
    """List the subjects of the registry with their versions, level, and policy."""
    client = _client(registry)
    versions: dict[str, list[int]] = {}
    for one in client.list_versions(":*:"):  # of all contexts
        versions.setdefault(one.subject, []).append(one.version)
    rows = []
    for subject, numbers in versions.items():
        held = client.compatibility(subject)
        rows.append((subject, len(numbers), max(numbers), str(held.level), str(held.policy)))
    header = ("subject", "versions", "latest", "compatibility", "policy")
    print_rows(header, rows, form)


@schema_app.command()
def show(
    subject: Annotated[
        str, typer.Argument(help="SUBJECT (its latest version), or SUBJECT:VERSION")
    ],
    registry: RegistryOption = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Show a schema of a subject: the latest version, or a named one."""
    from headworks.schema._json_text import indented, json_or_text

    found = _version(subject, _client(registry))
    if form is Format.JSON:
        print_json(
            {
                "subject": found.subject,
                "version": found.version,
                "id": found.id,
                "schema": json_or_text(found.text),
            }
        )
    else:
        print_status(f"{found.subject}, version {found.version}, id {found.id}")
        sys.stdout.write(indented(found.text) + "\n")


def _trials(bootstrap: str | None, baselines: Sequence[str], most: int) -> MessageTrials:
    """Return the trials with the schemas of the first registry among the baselines, if any."""
    from headworks._ci.trial import MessageTrials
    from headworks._cli.broker_address import bootstrap_servers

    named = [one.partition(":") for one in baselines]
    registry = next((address for kind, _, address in named if kind == "registry"), None)
    return MessageTrials(bootstrap_servers(bootstrap), _client(registry), most)


def _paths(schemas: list[str] | None) -> list[Path]:
    return [Path(one) for one in schemas or [resolve("schemas")]]


def _report(
    verdict: Verdict, form: ReportFormat, output: Path | None, reports: Sequence[str]
) -> None:
    from headworks._ci.formats import render
    from headworks._ci.report import text_report

    for where in [_report_file(report) for report in reports]:
        _write(where[1], render(verdict, where[0].value))
    if output is not None:
        _write(output, render(verdict, form.value))
        print_status(f"{verdict.verdict}: report written to {output}")
    else:
        dressed = form is ReportFormat.TEXT
        text = text_report(verdict, _style()) if dressed else render(verdict, form.value)
        # A schema may hold characters that the terminal cannot print: escape them.
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()
    if verdict.refused:
        raise typer.Exit(FindingsError.exit_code)


def _report_file(text: str) -> tuple[ReportFormat, Path]:
    form, _, path = text.partition("=")
    if form not in list(ReportFormat) or not path:
        raise UsageError(
            f"--report {text} is not FORMAT=FILE", fix=f"FORMAT is one of {', '.join(ReportFormat)}"
        )
    return ReportFormat(form), Path(path)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"cannot write the report to {path}: {error.strerror}") from None


def _style() -> Style:
    """Return colors and a width for a terminal (unless NO_COLOR or TERM=dumb), else neither."""
    from headworks._ci.report import PLAIN, Style

    if not sys.stdout.isatty():
        return PLAIN
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Style(not plain, shutil.get_terminal_size().columns)


def _with_address(base: str) -> str:
    """Add the URL of the settings to a bare `registry`."""
    return f"registry:{resolve('registry')}" if base == "registry" else base


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
        from headworks._ci.catalog import SchemaCatalog, read_folder

        path = Path(text)
        if not path.is_file():
            raise UsageError(f"{text} does not exist")
        one = SchemaCatalog(read_folder(path.parent)).file(path.as_posix())
        if one.schema is None:
            raise one.error or UsageError(f"{text} cannot be read")
        return one.schema
    return parse(_version(text, _client(registry)).text, strict=False)
