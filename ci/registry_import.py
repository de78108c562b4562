"""Copy a whole registry into another one, and prove afterwards that both are equal.

Each run compares both registries and writes the difference. So an import that was killed at any
request is resumed by running it again. It writes versions with their ids, those that others refer
to first. Then follow soft deletions in the opposite order, settings, and modes. At the end it reads
both registries again.

Rules: nothing is written if a version or an id has other content in the target, or if a schema is
not Avro. The target is in mode IMPORT until all is written, so that nobody else can take an id. The
source is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from urllib.parse import quote

from headworks._ci.registry_contents import (
    EVERY_CONTEXT,
    GLOBAL,
    ContentDifference,
    Key,
    Kind,
    RegistryContents,
    RegistryVersion,
    differences,
    read_contents,
    settings_to_change,
)
from headworks._subject import Subject
from headworks.errors import FindingsError, RefusedError
from headworks.registry_client import RegistryClient
from headworks.registry_client._answers import reading

_IMPORT, _READWRITE = "IMPORT", "READWRITE"
_MAX_NAMED = 10
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The parts that the target lacks, in the order in which they are written."""

    versions: tuple[RegistryVersion, ...] = ()
    deletions: tuple[Key, ...] = ()
    configs: tuple[str, ...] = ()  # scopes
    modes: tuple[str, ...] = ()  # scopes

    @property
    def is_empty(self) -> bool:
        """Whether the target is equal already."""
        return not (self.versions or self.deletions or self.configs or self.modes)


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The findings and the work of an import."""

    source: RegistryContents
    plan: ImportPlan
    refused: tuple[str, ...]  # the target's reasons
    differences: tuple[ContentDifference, ...]  # that remain

    @property
    def is_equal(self) -> bool:
        """Whether both registries were equal when they were read at the end."""
        return not self.differences

    def as_dict(self) -> dict[str, object]:
        """Return the result as JSON."""
        return {
            "equal": self.is_equal,
            "subjects": len(self.source.subjects),
            "versions": len(self.source.versions),
            "imported": len(self.plan.versions),
            "deleted": len(self.plan.deletions),
            "settings": len(self.plan.configs),
            "modes": len(self.plan.modes),
            "refused": list(self.refused),
            "differences": [str(one) for one in self.differences],
        }


def import_registry(
    source: RegistryClient,
    target: RegistryClient,
    *,
    standby: bool = False,
    dry_run: bool = False,
    progress: Progress = lambda _: None,
) -> ImportResult:
    """Make the target hold what the source holds; return the proof, or the differences.

    `standby` leaves the target in mode IMPORT for a further import. Raises FindingsError, before
    anything is written, if the target has other content or the source has other schemas than Avro.
    """
    theirs = read_contents(source)
    ours = read_contents(target, also=theirs.scopes)
    plan = plan_import(theirs, ours)
    if dry_run:
        return ImportResult(theirs, plan, (), tuple(differences(theirs, ours)))
    refused = _write(plan, theirs, ours, target, progress, standby=standby)
    progress("comparing both registries")
    now = read_contents(source)
    left = tuple(differences(now, read_contents(target, also=now.scopes)))
    return ImportResult(theirs, plan, tuple(refused), left)


def plan_import(source: RegistryContents, target: RegistryContents) -> ImportPlan:
    """Return what the target lacks. Raises FindingsError if it cannot become equal."""
    _refuse_other_kinds(source)
    found = list(differences(source, target))
    conflicts = [str(one) for one in found if one.kind in (Kind.CONTENT, Kind.EXTRA)]
    conflicts += _taken_ids(source, target)
    if conflicts:
        raise FindingsError(
            f"the target is no copy of the source: {_listed(conflicts)}",
            fix="import into an empty registry, or delete these versions there permanently",
        )
    absent = {
        (one.subject, one.number) for one in found if one.kind in (Kind.MISSING, Kind.NOT_LIVE)
    }
    gone = {(one.subject, one.number) for one in found if one.kind is Kind.NOT_DELETED}
    gone |= {key for key in absent if source.versions[key].deleted}
    order = _referenced_first(source)
    return ImportPlan(
        tuple(one for one in order if one.key in absent),
        tuple(one.key for one in reversed(order) if one.key in gone),
        tuple(one.subject for one in found if one.kind is Kind.CONFIG),
        tuple(one.subject for one in found if one.kind is Kind.MODE),
    )


def _refuse_other_kinds(source: RegistryContents) -> None:
    others = sorted(
        {f"{one} ({one.kind})" for one in source.versions.values() if one.kind != "AVRO"}
    )
    if others:
        raise FindingsError(
            f"this registry keeps Avro schemas only, and the source has {_listed(others)}",
            fix="move these subjects to a registry that keeps them, then import again",
        )


def _taken_ids(source: RegistryContents, target: RegistryContents) -> list[str]:
    """Return the ids under which the target's own subjects have other content."""
    wanted = {(one.subject.context, one.id): one for one in source.versions.values()}
    texts: dict[tuple[str, int], str] = {}
    taken = []
    for one in target.versions.values():
        at = (one.subject.context, one.id)
        theirs = wanted.get(at)
        if theirs is None or one.key in source.versions:
            continue
        expected = texts.setdefault(at, source.canonical(theirs))
        if target.canonical(one) != expected:
            taken.append(f"id {one.id} of {theirs} belongs to {one} there")
    return taken


def _referenced_first(source: RegistryContents) -> list[RegistryVersion]:
    """Return all versions by id, but each after those that it refers to."""
    order: dict[Key, RegistryVersion] = {}
    by_id = sorted(source.versions.values(), key=lambda one: (one.subject.context, one.id, one.key))
    stack = [(one, False) for one in reversed(by_id)]
    while stack:
        version, ready = stack.pop()
        if version.key in order:
            continue
        if ready:
            order[version.key] = version
            continue
        stack.append((version, True))
        targets = (source.versions.get(key) for key in version.referenced)
        stack += [(one, False) for one in targets if one is not None and one.key not in order]
    return list(order.values())


def _write(
    plan: ImportPlan,
    source: RegistryContents,
    held: RegistryContents,
    target: RegistryClient,
    progress: Progress,
    *,
    standby: bool,
) -> list[str]:
    """Write what a plan has; return the reasons of refused versions."""
    found = target.ask("GET", "/mode")
    with reading(target.url):
        importing = found["mode"] == _IMPORT
    if not importing and (standby or not plan.is_empty):
        target.ask("PUT", "/mode?force=true", {"mode": _IMPORT})
    opened = _open(plan, held, target)
    plan, held = _without_aliases(plan, held, target)
    refused = []
    for number, one in enumerate(plan.versions, 1):
        progress(f"importing version {number:,} of {len(plan.versions):,}")
        try:
            target.ask("POST", f"/subjects/{_quoted(str(one.subject))}/versions", _body(one))
        except RefusedError as error:
            if error.status in (401, 403):
                raise
            refused.append(f"{one}: {error.message}")
    if refused:
        _write_modes({*plan.modes, *opened}, source, target)
        return refused  # the target stays in mode IMPORT: it is no copy yet
    for subject, version in plan.deletions:
        _delete(target, f"/subjects/{_quoted(subject)}/versions/{version}")
    _write_configs(plan, source, held, target)
    _write_modes({*plan.modes, *opened}, source, target)
    if not standby and (importing or not plan.is_empty):
        target.ask("PUT", "/mode", {"mode": _READWRITE})
    return refused


def _without_aliases(
    plan: ImportPlan, held: RegistryContents, target: RegistryClient
) -> tuple[ImportPlan, RegistryContents]:
    """Remove the aliases under whose names versions are written: they would go elsewhere."""
    configs = dict(held.configs)
    names = {str(one.subject) for one in plan.versions if "alias" in configs.get(one.key[0], {})}
    for name in sorted(names):
        target.ask("PUT", f"/config/{_quoted(name)}", {"alias": None})
        configs[name] = {key: value for key, value in configs[name].items() if key != "alias"}
    planned = tuple(sorted({*plan.configs, *names}))
    return replace(plan, configs=planned), replace(held, configs=configs)


def _write_modes(scopes: set[str], source: RegistryContents, target: RegistryClient) -> None:
    """Give each scope the mode that it has in the source."""
    for scope in sorted(scopes):
        path = f"/mode/{_quoted(scope)}"
        if scope in source.modes:
            target.ask("PUT", f"{path}?force=true", {"mode": source.modes[scope]})
        else:
            _delete(target, path)


def _write_configs(
    plan: ImportPlan, source: RegistryContents, held: RegistryContents, target: RegistryClient
) -> None:
    scopes = {*plan.configs}
    if EVERY_CONTEXT in scopes:
        scopes.add(GLOBAL)  # whose answer shows the settings for all contexts that it lacks
    for scope in sorted(scopes, key=lambda one: (one != EVERY_CONTEXT, one)):
        path = f"/config/{_quoted(scope)}" if scope else "/config"
        wanted, before = source.configs.get(scope, {}), held.configs.get(scope, {})
        changes = settings_to_change(wanted, before)
        if scope == GLOBAL:
            target.ask("PUT", path, {**wanted, **changes})
        elif scope not in source.configs and before.keys() <= changes.keys():
            _delete(target, path)  # nothing of the target's own is left
        else:
            target.ask("PUT", path, changes)


def _open(plan: ImportPlan, held: RegistryContents, target: RegistryClient) -> list[str]:
    """Set the mode IMPORT where a mode of its own, or of its context, forbids a change.

    A mode for all contexts is changed before: READONLY_OVERRIDE there forbids every change.
    """
    names = {str(one.subject) for one in plan.versions} | {name for name, _ in plan.deletions}
    names |= {*plan.configs} - {GLOBAL, EVERY_CONTEXT}
    opened = []
    changes = plan.versions or plan.deletions or plan.configs
    if changes and held.modes.get(EVERY_CONTEXT, _IMPORT) != _IMPORT:
        target.ask("PUT", f"/mode/{_quoted(EVERY_CONTEXT)}?force=true", {"mode": _IMPORT})
        opened.append(EVERY_CONTEXT)
    for name in sorted(names):
        context = str(Subject.parse(name).whole_context)
        if (held.modes.get(name) or held.modes.get(context) or _IMPORT) != _IMPORT:
            target.ask("PUT", f"/mode/{_quoted(name)}?force=true", {"mode": _IMPORT})
            opened.append(name)
    return opened


def _delete(target: RegistryClient, path: str) -> None:
    """Delete, unless a request whose response was lost has done so."""
    try:
        target.ask("DELETE", path)
    except RefusedError as error:
        if error.status != 404:
            raise


def _body(version: RegistryVersion) -> dict[str, object]:
    body: dict[str, object] = {
        "schema": version.text,
        "id": version.id,
        "version": version.number,
        "references": [asdict(one) for one in version.references],
        "metadata": version.metadata,
        "ruleSet": version.rule_set,
    }
    return {name: value for name, value in body.items() if value}


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
    return f"{'; '.join(names[:_MAX_NAMED])}{more}"
