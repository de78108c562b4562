"""The verdict for people: each finding with its lines, who breaks, on which data, and the fix.

A change that breaks the readers of many versions in the same way is said once, with the versions.
Pure text; no colours, so that it reads the same in a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ci.gate import PlacedFinding, SubjectVerdict, Verdict

__all__ = ["grouped", "summary", "text_report"]

_MOST_LINES = 6


def text_report(verdict: Verdict) -> str:
    """The whole report; ends with a line that sums it up."""
    blocks = [block for one in verdict.subjects for block in _subject(one)]
    return "\n".join([*blocks, summary(verdict)]) + "\n"


def summary(verdict: Verdict) -> str:
    """One line: the verdict and the counts."""
    refused = [one for one in verdict.subjects if one.refused]
    total = len(verdict.subjects)
    files = f"{total} schema file{'s' * (total != 1)}"
    waived = sum(1 for one in verdict.findings if one.waiver is not None)
    tail = f", {waived} waived" if waived else ""
    if not refused:
        return f"pass: {files} checked{tail}"
    count = sum(1 for one in verdict.findings if one.waiver is None)
    findings = f"{count} finding{'s' * (count != 1)}"
    return f"refused: {findings} in {len(refused)} of {files}{tail}"


def grouped(findings: Iterable[PlacedFinding]) -> list[list[PlacedFinding]]:
    """Findings that are one for people: the same rule at the same place, against many versions."""
    groups: dict[tuple[object, ...], list[PlacedFinding]] = {}
    for one in findings:
        proposed_reads = one.finding.reader_version is None
        key = (one.file, one.position, one.finding.rule, one.finding.fix, proposed_reads)
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _subject(one: SubjectVerdict) -> Iterator[str]:
    mark = "refused" if one.refused else "pass"
    name = one.file if one.subject is None else f"{one.subject} ({one.file})"
    notes = f": {'; '.join(one.notes)}" if one.notes else ""
    yield f"{mark}  {name}{notes}"
    for group in grouped(one.findings):
        yield ""
        yield from _finding(group)
    if one.findings:
        yield ""


def _finding(group: Sequence[PlacedFinding]) -> Iterator[str]:
    first, finding = group[0], group[0].finding
    word = "error" if first.waiver is None else "waived"
    yield f"{word}[{finding.rule}]: {finding.message}"
    position = first.position
    gutter = " " * len(str(position.line + _MOST_LINES))
    yield f"{gutter}--> {first.file}:{position.line}:{position.column}"
    if first.lines:
        yield f"{gutter} |"
        for number, line in enumerate(first.lines[:_MOST_LINES], start=position.line):
            yield f"{number:>{len(gutter)}} | {line}"
        if position.end_line >= position.line + _MOST_LINES:
            yield f"{gutter} | ..."
        elif position.line == position.end_line:
            width = max(1, position.end_column - position.column)
            yield f"{gutter} | {' ' * (position.column - 1)}{'^' * width}"
        yield f"{gutter} |"
    against = list(dict.fromkeys(one.against for one in group if one.against))
    for label in against:
        yield f"{gutter} = against: {label}"
    if finding.fix:
        yield f"{gutter} = fix: {finding.fix}"
    if first.waiver is not None:
        yield f"{gutter} = waived until {first.waiver.until}: {first.waiver.reason}"
