"""The deploy step: make a registry match the catalog.

For each subject, it registers the schema, with the types of other files written out, and sets the
level and the policy. A second run changes nothing.

Rules:

- Each subject is deployed completely or not at all. The schema is first compared with the versions
  in the registry, at the level and policy of the catalog. Level and policy are set only after the
  schema is registered. A refused subject is unchanged, and does not stop the others.
- If the registry's own level is stricter, the wanted level is set before the schema is registered.
  If the schema is refused all the same, because somebody registered in between, the level is
  restored.
- With `dry_run` nothing is written, and the result is the one that a deploy would return.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from headworks._ci.baselines import RegistryBaseline
from headworks._ci.catalog import SchemaCatalog, SchemaFile, read_folder, within
from headworks._ci.governance import (
    SubjectGovernance,
    catalog_root,
    no_schema_files,
    read_governance,
)
from headworks.compatibility import Finding, check_level
from headworks.errors import HeadworksError, RefusedError, SchemaError
from headworks.registry_client import (
    Compatibility,
    IncompatibleSchemaError,
    Registered,
    RegistryClient,
)
from headworks.schema._canonical import canonical_text

# Statuses by which a registry refuses one subject; others may succeed.
_REFUSAL_STATUSES = (403, 409, 422)


@dataclass(frozen=True, slots=True)
class DeployResult:
    """The result of one subject."""

    subject: str
    file: str
    result: str  # registered, unchanged, would register, or refused
    version: int | None = None
    id: int | None = None
    settings: str | None = None  # the change of level and policy, in words; None: no change
    findings: tuple[Finding, ...] = ()
    reason: str | None = None  # the registry's message, if it refused for another reason

    @property
    def refused(self) -> bool:
        """Whether the registry refuses it."""
        return self.result == "refused"

    def as_dict(self) -> dict[str, object]:
        """Return the result as JSON."""
        return {**asdict(self), "findings": [one.as_dict() for one in self.findings]}


def register(
    schemas: Path, client: RegistryClient, *, dry_run: bool = False
) -> Iterator[DeployResult]:
    """Register every subject of the catalog in `schemas` (a folder or one file).

    Raises SchemaError if a file cannot be read, before anything is sent.
    """
    root = catalog_root(schemas)
    governance = read_governance(root)
    whole = SchemaCatalog(read_folder(root), governance.mapped(root.as_posix()))
    files = [one for one in whole.files() if within(one.path, [schemas])]
    if not files:
        raise no_schema_files([schemas])
    for one in files:
        if one.error is not None:
            raise SchemaError(
                f"{one.path}: {one.error.reason}",
                pointer=one.error.pointer.rpartition("#")[2],
                rule=one.error.rule,
                fix=one.error.fix,
            )
    for subject, one in whole.subjects([schemas]).items():
        if within(one.path, [schemas]):
            yield _register(subject, one, client, governance.of(subject), dry_run)


def _register(
    subject: str, one: SchemaFile, client: RegistryClient, demand: SubjectGovernance, dry_run: bool
) -> DeployResult:
    assert one.schema is not None
    text = canonical_text(one.schema)
    held = client.compatibility(subject)
    wanted = Compatibility(demand.level, demand.policy)
    settings = None if held == wanted else f"{_words(held)} -> {_words(wanted)}"
    try:
        known = client.lookup(subject, text)
        if known is None:
            base = RegistryBaseline(client)
            history = base.history(subject)
            versions = () if history is None else history.versions
            findings = tuple(check_level(one.schema, versions, demand.level, demand.policy))
            if findings:
                return DeployResult(subject, one.path, "refused", findings=findings)
            if dry_run:
                # The registry itself can check only at its current level.
                reason = (
                    base.closed(subject) if settings else base.refusal(subject, one.schema, demand)
                )
                result = "would register" if reason is None else "refused"
                return DeployResult(subject, one.path, result, settings=settings, reason=reason)
            known = _write(subject, text, client, held, wanted)
            result = "registered"
        else:
            result = "unchanged"
        if settings is not None and not dry_run:
            client.set_compatibility(subject, wanted.level, wanted.policy)
        return DeployResult(subject, one.path, result, known.version, known.id, settings)
    except IncompatibleSchemaError as error:
        return DeployResult(subject, one.path, "refused", findings=tuple(error.findings))
    except RefusedError as error:
        if error.status not in _REFUSAL_STATUSES:
            raise
        return DeployResult(subject, one.path, "refused", reason=error.message)


def _write(
    subject: str, text: str, client: RegistryClient, held: Compatibility, wanted: Compatibility
) -> Registered:
    """Register at the registry's level; if that refuses the schema, at the wanted level."""
    try:
        return client.register(subject, text)
    except IncompatibleSchemaError:
        if held == wanted:
            raise
    client.set_compatibility(subject, wanted.level, wanted.policy)
    try:
        return client.register(subject, text)
    except HeadworksError:
        client.set_compatibility(subject, held.level, held.policy)
        raise


def _words(held: Compatibility) -> str:
    return f"{held.level}, {held.policy}"
