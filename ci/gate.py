"""The check: may these schemas be merged, and registered, where they are going?

    verdict = check(Path("schemas"), ["git:origin/main", "registry:http://127.0.0.1:8081"])

Every subject of the catalog is compared with every given baseline, at that baseline's level and
policy, by the function that the registry itself uses.

Rules: a new subject passes, and a renamed file is followed. A deleted subject is a finding. A file
that is not a schema is a finding too, and hides no other finding. If a change passes under a lax
policy, the findings of the subject's default policy are warnings, unless the same field is refused.
A finding says who uses the version that breaks, and may pass if nobody does (`usage`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from headworks._ci.baselines import Baseline, GitBaseline, SubjectHistory, open_baseline
from headworks._ci.catalog import (
    SchemaCatalog,
    SchemaFile,
    SharedSchemas,
    read_folder,
    within,
)
from headworks._ci.consumers import DownstreamConsumers
from headworks._ci.governance import (
    GovernanceFile,
    Waiver,
    catalog_root,
    no_schema_files,
    read_governance,
)
from headworks._ci.lint import lint_file
from headworks._ci.locations import locate, refusal
from headworks._ci.processes import map_in_forks
from headworks._ci.rules import CATALOG_RULES
from headworks._ci.source_map import Region
from headworks._ci.usage import AskUsage, evidence_of
from headworks._ci.verdict import (
    DownstreamConsumer,
    Impact,
    LocatedFinding,
    SubjectVerdict,
    Verdict,
)
from headworks.compatibility import Finding, Level, Policy, check_level, stricter_findings
from headworks.errors import UsageError
from headworks.schema import Record, Schema, topic_of
from headworks.schema._canonical import fingerprint, is_same

if TYPE_CHECKING:
    from headworks._ci.trial import Trial

# Tries a schema of a subject on messages; None for a subject without a topic.
TryOn = Callable[[str, Schema], "Trial | None"]

# The file name of a proposed schema that is only a text.
PROPOSED = "proposed.avsc"


@dataclass(frozen=True, slots=True)
class _CheckContext:
    """The input of a check that is the same for every subject."""

    catalog: SchemaCatalog
    governance: GovernanceFile
    baselines: tuple[Baseline, ...]
    readers_of: Callable[[str], Sequence[DownstreamConsumer]]
    waived: tuple[Waiver, ...]
    day: date
    usage: AskUsage | None = None
    now_ms: int = 0
    try_on: TryOn | None = None


def check(
    schemas: Path | Sequence[Path],
    against: Sequence[str],
    *,
    today: date | None = None,
    home: Path | None = None,
    bootstrap: str | None = None,
    waive: Sequence[Waiver] = (),
    usage: AskUsage | None = None,
    try_on: TryOn | None = None,
) -> Verdict:
    """Check the catalog in `schemas` (its folders or files) against every baseline.

    If `schemas` is a file, the files that use its types are checked too. `against` has one or more
    of `git:REF` and `registry:URL`. `home` is the folder of the catalog if no governance.toml marks
    it. `bootstrap` is a broker whose consumer groups are listed with the changes. `waive` applies
    to every subject, in addition to the waivers of governance.toml. `usage` is asked for the
    subjects with findings, and `try_on` tries changed schemas on messages.

    Raises UsageError if a baseline or the catalog cannot be read, and UnreachableError if a
    registry or the broker does not answer.
    """
    if not against:
        raise UsageError(
            "there is nothing to check against",
            fix="give --against registry (the configured one), --against registry:URL, or "
            "--against git:origin/main; or several of them",
        )
    paths = [schemas] if isinstance(schemas, Path) else list(schemas)
    root = catalog_root(*paths, home=home)
    governance = read_governance(root)
    shared = SharedSchemas()
    baselines = tuple(open_baseline(text, root, governance, shared) for text in against)
    catalog = SchemaCatalog(read_folder(root), governance.mapped(root.as_posix()), shared)
    catalog.subjects(paths)  # refuses two files with one subject
    day = today or datetime.now(tz=UTC).date()
    consumers = DownstreamConsumers(governance, bootstrap)
    context = _CheckContext(
        *(catalog, governance, baselines, consumers.of, tuple(waive), day),
        *(None if usage is None else cache(usage), time.time_ns() // 1_000_000, try_on),
    )
    verdicts = _check_files(
        [one for one in catalog.files() if catalog.touches(one.path, paths)], context
    )
    verdicts += _deleted(context, paths)
    if not verdicts:
        raise no_schema_files(paths)
    return Verdict(tuple(verdicts), tuple(baseline.name for baseline in baselines))


def check_text(
    text: str,
    baseline: Baseline,
    *,
    governance: GovernanceFile,
    readers_of: Callable[[str], Sequence[DownstreamConsumer]],
    subject: str | None = None,
    beside: Mapping[str, str] | None = None,
    today: date | None = None,
) -> tuple[SubjectVerdict, SubjectVerdict]:
    """Return the verdict and the lint of a schema that is not a file yet; nothing is written.

    It is compared with `subject` (None: the subject that it names itself). `beside` has texts, by
    any names, whose types it may use.
    """
    mapped = {} if subject is None else {PROPOSED: subject}
    catalog = SchemaCatalog({**(beside or {}), PROPOSED: text}, mapped)
    one = catalog.file(PROPOSED)
    day = today or datetime.now(tz=UTC).date()
    context = _CheckContext(catalog, governance, (baseline,), readers_of, (), day)
    return _check_file(one, context), lint_file(one, catalog, governance, day)


def named_subject(text: str, beside: Mapping[str, str]) -> str | None:
    """Return the subject that a schema names itself, before it is a file."""
    return SchemaCatalog({**beside, PROPOSED: text}).file(PROPOSED).subject


def _check_files(files: Sequence[SchemaFile], context: _CheckContext) -> list[SubjectVerdict]:
    """Return the verdicts on files; those that need nothing but git come from all cores.

    Only this process may ask a registry, a broker, or the audit.
    """
    here = partial(_check_file, context=context)
    if not all(isinstance(one, GitBaseline) for one in context.baselines):
        return [here(one) for one in files]
    alone = replace(context, usage=None, try_on=None)
    return map_in_forks(files, partial(_check_alone, context=alone), here)


def _check_alone(one: SchemaFile, context: _CheckContext) -> SubjectVerdict | None:
    """Return the verdict on an unchanged file that has no findings; None for any other file."""
    verdict = _check_file(one, context)
    return None if verdict.changed or verdict.reported else verdict


def _check_file(one: SchemaFile, context: _CheckContext) -> SubjectVerdict:
    if one.error is not None:
        return SubjectVerdict(None, one.path, (locate(one, refusal(one), texts=context.catalog),))
    assert one.schema is not None
    if one.subject is None:
        note = "shared types: checked in every subject that uses them"
        return SubjectVerdict(None, one.path, (), (note,))
    found: list[LocatedFinding] = []
    warned: list[LocatedFinding] = []
    notes: list[str] = []
    histories = [(baseline, baseline.history(one.subject)) for baseline in context.baselines]
    for baseline, history in histories:
        notes += _notes(one, baseline, history)
        for finding, against in _findings(one, baseline, history, context.governance):
            located = _locate(one, finding, against, context)
            found.append(_with_usage(located, history, context))
        for finding, against in _warnings(one, baseline, history, context.governance):
            located = _locate(one, finding, against, context)
            warned.append(replace(located, is_warning=True))
    refused = {(located.file, located.finding.path) for located in found}
    warned = [each for each in warned if (each.file, each.finding.path) not in refused]
    known = [[v.schema for v in history.versions] for _, history in histories if history]
    changed = not any(is_same(schemas[-1], one.schema) for schemas in known if schemas)
    impact = _impact(one.schema, one.subject, known, context) if changed else None
    trial = context.try_on(one.subject, one.schema) if changed and context.try_on else None
    if trial is not None:
        notes.append(trial.note)
        found += [_locate(one, each, trial.topic, context) for each in trial.findings()]
    return SubjectVerdict(
        one.subject, one.path, tuple(found), tuple(notes), impact, changed, tuple(warned)
    )


def _findings(
    one: SchemaFile,
    baseline: Baseline,
    history: SubjectHistory | None,
    files: GovernanceFile,
) -> Iterator[tuple[Finding, str]]:
    """Yield the findings against one baseline, each with the label of the compared version.

    A subject without a history has the level and the policy of the governance file.
    """
    assert one.schema is not None
    assert one.subject is not None
    if history is not None and history.has_registered(one.schema):
        return
    governance = files.of(one.subject) if history is None else history.governance
    versions = () if history is None else history.versions
    try:
        found = check_level(one.schema, versions, governance.level, governance.policy)
    except UsageError as error:
        raise UsageError(f"{one.path}: {error.message}", fix=error.fix) from None
    for finding in found:
        yield finding, _against(finding, baseline, history)
    own = None if found else baseline.refusal(one.subject, one.schema, governance)
    if own is not None:
        fix = "the registry's own settings decide this: its mode, its limits, its level"
        kind = CATALOG_RULES["HW303"][0]
        yield Finding("HW303", kind, own, fix, "", f"{one.path}#", ""), baseline.name


def _warnings(
    one: SchemaFile,
    baseline: Baseline,
    history: SubjectHistory | None,
    files: GovernanceFile,
) -> Iterator[tuple[Finding, str]]:
    """Yield what the subject's default policy would refuse of a change, as `_findings` does.

    A schema that is the latest version already gets no warnings: they were shown when it changed.
    """
    assert one.schema is not None
    assert one.subject is not None
    governance = files.of(one.subject) if history is None else history.governance
    versions = () if history is None else history.versions
    if versions and is_same(versions[-1].schema, one.schema):
        return
    strictest = Policy.default_of(one.subject)
    try:
        found = stricter_findings(
            one.schema, versions, governance.level, governance.policy, strictest
        )
    except UsageError as error:
        raise UsageError(f"{one.path}: {error.message}", fix=error.fix) from None
    for finding in found:
        yield finding, _against(finding, baseline, history)


def _against(finding: Finding, baseline: Baseline, history: SubjectHistory | None) -> str:
    """Return the baseline, with the label of the version that the finding is about."""
    number = finding.writer_version or finding.reader_version
    label = None if history is None else history.label(number)
    return baseline.name if label is None else f"{baseline.name} ({label})"


def _locate(
    one: SchemaFile, finding: Finding, against: str, context: _CheckContext
) -> LocatedFinding:
    assert one.subject is not None
    waivers = (*context.waived, *context.governance.of(one.subject).waivers)
    covering = [waiver for waiver in waivers if waiver.covers(finding, one.subject)]
    waiver = next((each for each in covering if each.counts_on(context.day)), None)
    located = locate(one, finding, texts=context.catalog, against=against, waiver=waiver)
    if waiver is None and covering:
        return replace(located, expired=covering[0])
    return located


def _with_usage(
    located: LocatedFinding, history: SubjectHistory | None, context: _CheckContext
) -> LocatedFinding:
    """Add what is known of those who would break by a finding."""
    if context.usage is None or located.subject is None:
        return located
    usage = context.usage(located.subject)
    if usage is None:
        return located
    known = {one.number: fingerprint(one.schema) for one in history.versions} if history else {}
    rule = context.governance.evidence
    return replace(located, usage=evidence_of(located.finding, usage, known, rule, context.now_ms))


def _impact(
    schema: Schema, subject: str, histories: Sequence[Sequence[Schema]], context: _CheckContext
) -> Impact | None:
    """Return the impact of the change; the longest history has the most of the table."""
    topic = topic_of(subject)
    if topic is None or not isinstance(schema, Record):
        return None
    from headworks._ci.impact import impact_of  # imports much, and most files have not changed

    history = max(histories, key=len, default=())
    return impact_of(topic, schema, history, context.readers_of(topic))


def _notes(one: SchemaFile, baseline: Baseline, history: SubjectHistory | None) -> Iterator[str]:
    if history is None:
        yield f"new subject: not in {baseline.name}"
        return
    count = len(history.versions)
    held = f"{history.governance.level}, policy {history.governance.policy}"
    yield f"compared with {count} version{'s' * (count != 1)} of {baseline.name} ({held})"
    was = history.path
    if was is None or one.path == was:
        return
    if Path(was).name != Path(one.path).name:
        yield f"renamed: the file was {was}"
    elif not Path(one.path).resolve().as_posix().endswith(was):
        yield f"moved: the file was {was}"


def _deleted(context: _CheckContext, paths: Sequence[Path]) -> Iterator[SubjectVerdict]:
    """Yield the subjects that had a file in `paths` in a git baseline, and have none now."""
    catalog, governance = context.catalog, context.governance
    kept = {one.subject for one in catalog.files()}
    # An unreadable file may be the subject's: its own finding is sufficient.
    broken = {Path(one.path).name for one in catalog.files() if one.error is not None}
    for baseline in context.baselines:
        files = baseline.files
        if files is None:
            continue
        for subject, path in baseline.subjects().items():
            if subject in kept or path is None or Path(path).name in broken:
                continue
            if not within(str(files.root / path), paths):
                continue
            if governance.of(subject).level is Level.NONE:
                note = f"deleted: {path}, level NONE"
                yield SubjectVerdict(subject, path, (), (note,))
                continue
            restore = files.restore(path)
            yield _deleted_subject(subject, path, baseline.name, restore, context)


def _deleted_subject(
    subject: str, path: str, against: str, restore: str, context: _CheckContext
) -> SubjectVerdict:
    message = (
        f"Subject {subject} has no file any more ({path} in {against}): its producers can "
        "no longer be checked, its consumers and its table stay"
    )
    fix = (
        f"restore the file: {restore}; if the topic is really gone, write into governance.toml, "
        f'beside the schemas, the line [subjects."{subject}"], and below it compatibility = "NONE"'
    )
    kind = CATALOG_RULES["HW302"][0]
    finding = Finding("HW302", kind, message, fix, "", "", "")
    located = LocatedFinding(finding, subject, path, Region(1, 1, 1, 1), (), against)
    return SubjectVerdict(subject, path, (_with_usage(located, None, context),))
