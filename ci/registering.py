"""The deploy step: bring a registry to what the catalogue says.

For each subject its level and policy are set, then its schema is registered, with every type that
it takes from other files written out. Doing it twice changes nothing. With `dry_run` nothing is
written at all, and the verdict is still the registry's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ci.catalogue import Catalogue, SchemaFile, read_folder, within
from ci.governance import Demand, catalogue_root, read_governance
from headworks.compatibility import Finding
from headworks.errors import SchemaError
from headworks.registry_client import IncompatibleSchemaError, RegistryClient
from headworks.schema.canonical import canonical_text

__all__ = ["Outcome", "register"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one subject: registered, unchanged, would register, or refused."""

    subject: str
    file: str
    result: str
    version: int | None = None
    id: int | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether the registry does not take it."""
        return self.result == "refused"

    def as_dict(self) -> dict[str, object]:
        """The outcome as JSON."""
        return {**asdict(self), "findings": [one.as_dict() for one in self.findings]}


def register(schemas: Path, client: RegistryClient, *, dry_run: bool = False) -> Iterator[Outcome]:
    """Register every subject of the catalogue in `schemas` (a folder or one file).

    Raises SchemaError if a file cannot be read, before anything is sent.
    """
    root = catalogue_root(schemas)
    whole = Catalogue(read_folder(root))
    governance = read_governance(root)
    for one in whole.files():
        if one.error is not None and within(one.path, schemas):
            raise SchemaError(
                f"{one.path}: {one.error.reason}",
                pointer=one.error.pointer.rpartition("#")[2],
                rule=one.error.rule,
                fix=one.error.fix,
            )
    for subject, one in whole.subjects().items():
        if within(one.path, schemas):
            yield _register(subject, one, client, governance.of(subject), dry_run)


def _register(
    subject: str, one: SchemaFile, client: RegistryClient, demand: Demand, dry_run: bool
) -> Outcome:
    assert one.schema is not None
    text = canonical_text(one.schema)
    known = client.lookup(subject, text)
    if dry_run:
        if known is not None:
            return Outcome(subject, one.path, "unchanged", known.version, known.id)
        findings = tuple(client.check(subject, text))
        return Outcome(
            subject, one.path, "refused" if findings else "would register", findings=findings
        )
    held = client.compatibility(subject)
    if (held.level, held.policy) != (demand.level, demand.policy):
        client.set_compatibility(subject, demand.level, demand.policy)
    if known is not None:
        return Outcome(subject, one.path, "unchanged", known.version, known.id)
    try:
        done = client.register(subject, text)
    except IncompatibleSchemaError as error:
        return Outcome(subject, one.path, "refused", findings=tuple(error.findings))
    return Outcome(subject, one.path, "registered", done.version, done.id)
