"""Take over a catalog that exists: write to governance.toml which file has which subject.

A file has the subject in whose live versions its schema is. If no version is equal, it has the
subject whose latest version has the same full name.

Rules: no schema is edited. A table is added only for a subject that the file does not name itself,
and tables that exist are never changed. If several subjects come into question, a person decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headworks._atomic_file import replace_file
from headworks._ci.baselines import RegistryBaseline
from headworks._ci.catalog import SchemaCatalog, SchemaFile, read_folder
from headworks._ci.governance import FILE_NAME, catalog_root, no_schema_files, read_governance
from headworks.registry_client import RegistryClient
from headworks.schema import Schema
from headworks.schema._canonical import canonical_text
from headworks.schema._model import Named


@dataclass(frozen=True, slots=True)
class Adoption:
    """The result of one file."""

    file: str
    subject: str | None
    result: str


@dataclass(slots=True)
class _RegisteredSchemas:
    """The subjects of a registry, by the canonical text of each version and by latest name."""

    by_text: dict[str, list[str]] = field(default_factory=dict)
    by_name: dict[str, list[str]] = field(default_factory=dict)

    def add(self, subject: str, versions: Sequence[Schema]) -> None:
        for text in dict.fromkeys(map(canonical_text, versions)):
            self.by_text.setdefault(text, []).append(subject)
        latest = versions[-1]
        if isinstance(latest, Named):
            self.by_name.setdefault(latest.name, []).append(subject)

    def named_by(self, one: SchemaFile) -> Sequence[str]:
        """Return the subjects of a file's schema; none if it has no schema."""
        return () if one.schema is None else self.of(one.schema)

    def of(self, schema: Schema) -> Sequence[str]:
        """Return the subjects that a schema may belong to."""
        name = schema.name if isinstance(schema, Named) else ""
        equal = self.by_text.get(canonical_text(schema))
        return equal or self.by_name.get(name, [])


def adopt(schemas: Path, client: RegistryClient, *, dry_run: bool = False) -> list[Adoption]:
    """Map the files of the catalog in `schemas` to subjects; return the result of each file.

    Raises UsageError if the catalog or a registered schema cannot be read, and UnreachableError if
    the registry does not answer.
    """
    root = catalog_root(schemas)
    governance = read_governance(root)
    mapped = governance.mapped(root.as_posix())
    catalog = SchemaCatalog(read_folder(root), mapped)
    files = list(catalog.files())
    if not files:
        raise no_schema_files([schemas])
    registered = _registered(client)
    taken: set[str | None]
    taken = {one.subject for one in files if one.subject in registered.named_by(one)}
    taken |= governance.subjects.keys()
    found: list[Adoption] = []
    tables: dict[str, str] = {}
    for one in files:
        result = _adopted(one, registered, catalog, mapped, taken)
        found.append(result)
        if result.result == "mapped" and result.subject is not None:
            taken.add(result.subject)
            tables[result.subject] = Path(one.path).relative_to(root).as_posix()
    if tables and not dry_run:
        _write(root / FILE_NAME, tables)
    return found


def _adopted(
    one: SchemaFile,
    registered: _RegisteredSchemas,
    catalog: SchemaCatalog,
    mapped: Mapping[str, str],
    taken: set[str | None],
) -> Adoption:
    if one.path in mapped:
        return Adoption(one.path, one.subject, "mapped already")
    schema = one.schema or catalog.without_subject(one.path)
    if schema is None:
        reason = "" if one.error is None else f": {one.error.reason}"
        return Adoption(one.path, None, f"cannot be read{reason}")
    subjects = registered.of(schema)
    if one.subject is not None and (one.subject in subjects or not subjects):
        return Adoption(one.path, one.subject, "names its subject" if subjects else "new")
    if not subjects:
        return Adoption(one.path, None, "not registered")
    if len(subjects) > 1:
        return Adoption(one.path, None, f"several subjects: {', '.join(sorted(subjects))}")
    (subject,) = subjects
    if subject in taken:
        return Adoption(one.path, subject, f"has another file, or a table in {FILE_NAME}")
    return Adoption(one.path, subject, "mapped")


def _registered(client: RegistryClient) -> _RegisteredSchemas:
    found = _RegisteredSchemas()
    baseline = RegistryBaseline(client)
    for subject in baseline.subjects():
        versions = baseline.schemas(subject)
        if versions:
            found.add(subject, versions)
    return found


def _write(path: Path, tables: Mapping[str, str]) -> None:
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    text = before.rstrip("\n") + "\n\n" if before.strip() else ""
    replace_file(path, text + "\n".join(_tables(tables)))


def _tables(tables: Mapping[str, str]) -> Iterator[str]:
    for subject, file in tables.items():
        # A JSON text is a basic string of TOML, but for DEL, which no name has.
        name = json.dumps(subject, ensure_ascii=False)
        yield f"[subjects.{name}]\nfile = {json.dumps(file, ensure_ascii=False)}\n"
