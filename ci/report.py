"""The verdict for people: each finding with its lines, who breaks, on which data, and the fix.

Rules: a change that breaks the readers of many versions in the same way is reported once, with all
versions. A finding of lint is one line, and its rule is explained once, below the findings.
Unchanged schemas without findings are only counted. Without a `Style` the text has neither colors
nor a width, so that it is readable in a log.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headworks._ci.rules import LINT_RULES, title_of
from headworks._ci.source_map import Region
from headworks._ci.verdict import Impact, LocatedFinding, SubjectVerdict, Verdict

_MAX_LINES = 6
_TAB = "    "
_PLAIN_COLUMNS = 160  # without a terminal
_CUT = "..."
_MIN_COLUMNS = 40
_BOLD, _RED, _GREEN, _YELLOW, _BLUE, _OFF = (
    f"\x1b[{code}m" for code in ("1", "1;31", "32", "33", "1;34", "0")
)


@dataclass(frozen=True, slots=True)
class Style:
    """The style of the text: colors and a width, if the terminal has them."""

    colours: bool = False
    width: int | None = None

    def paint(self, text: str, colour: str) -> str:
        """Return the text in a color, if there are colors."""
        return f"{colour}{text}{_OFF}" if self.colours and text else text

    def wrap(self, text: str, first: str, rest: str) -> Iterator[str]:
        """Return the wrapped text, indented by `first`, and by `rest` on further lines."""
        if self.width is None or self.width < _MIN_COLUMNS:
            yield first + text
            return
        yield from textwrap.wrap(
            text,
            self.width,
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [first]


PLAIN = Style()


def text_report(verdict: Verdict, style: Style = PLAIN) -> str:
    """Return the whole report, which ends with a summary line."""
    fixes, compared = _common_fixes(verdict), bool(verdict.against)
    blocks = [
        block
        for one in sorted(verdict.subjects, key=lambda one: one.refused)  # those to mend are last
        if one.reported or _is_news(one, compared=compared)
        for block in _subject(one, style, fixes)
    ]
    blocks += _explained(fixes, style)
    colour = _RED if verdict.refused else _GREEN
    return "\n".join([*blocks, style.paint(summary(verdict), colour)]) + "\n"


def summary(verdict: Verdict) -> str:
    """Return one line: the verdict and the counts."""
    refused = [one for one in verdict.subjects if one.refused]
    total = len(verdict.subjects)
    files = f"{total} schema file{'s' * (total != 1)}"
    told = [group[0] for group in grouped(verdict.reported)]
    count = sum(1 for one in told if one.refuses)
    severities = [one.severity for one in told]
    counts = [(severities.count(word), word) for word in ("waived", "unused")]
    warnings = severities.count("warning")
    counts.append((warnings, f"warning{'s' * (warnings != 1)}"))
    rest = "".join(f", {number} {word}" for number, word in counts if number)
    changed = sum(1 for one in verdict.subjects if one.subject is not None and one.changed)
    if not refused:
        return f"pass: {files} checked{f', {changed} changed' * bool(verdict.against)}{rest}"
    findings = f"{count} finding{'s' * (count != 1)}"
    return f"refused: {findings} in {len(refused)} of {files}{rest}"


def grouped(findings: Iterable[LocatedFinding]) -> list[list[LocatedFinding]]:
    """Group the findings of the same rule at the same place, against many versions."""
    groups: dict[tuple[object, ...], list[LocatedFinding]] = {}
    for one in findings:
        proposed_reads = one.finding.reader_version is None
        of_versions = not proposed_reads or one.finding.writer_version is not None
        text = "" if of_versions else one.finding.message
        rule = (one.finding.rule, one.finding.fix, one.is_warning, one.severity)
        key = (one.file, one.region, rule, proposed_reads, text)
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def warning_reason(one: LocatedFinding) -> str:
    """Return why a finding is only a warning."""
    return f"{one.policy} would refuse this change; {one.subject} has a laxer policy"


def usage_of(group: Sequence[LocatedFinding]) -> list[str]:
    """Return what is known of those who would break by findings, each text once."""
    return list(dict.fromkeys(one.usage.text for one in group if one.usage is not None))


def _is_news(one: SubjectVerdict, *, compared: bool) -> bool:
    """Return whether a subject without findings is worth a line: its schema or place changed."""
    if any(note.startswith(("renamed", "moved", "deleted")) for note in one.notes):
        return True
    return compared and one.changed and one.subject is not None


def _subject(one: SubjectVerdict, style: Style, fixes: Mapping[str, str | None]) -> Iterator[str]:
    groups = grouped(one.reported)
    lines = [group for group in groups if group[0].finding.rule in LINT_RULES]
    if not lines or len(lines) < len(groups):
        yield from _changed(one, style)
    located = [group for group in groups if group[0].finding.rule not in LINT_RULES]
    for cluster in _clusters(located):
        yield ""
        yield from _findings(cluster, style)
    if len(lines) < len(groups):
        yield ""
    for group in lines:
        yield from _finding_line(group, style, fixes)


def _changed(one: SubjectVerdict, style: Style) -> Iterator[str]:
    mark = style.paint("refused", _RED) if one.refused else style.paint("pass", _GREEN)
    name = one.file if one.subject is None else f"{one.subject} ({one.file})"
    notes = f": {'; '.join(one.notes)}" if one.notes else ""
    yield from style.wrap(f"{name}{notes}", f"{mark}  ", "    ")
    if one.impact is not None:
        yield from _impact(one.impact, style)


def _impact(impact: Impact, style: Style) -> Iterator[str]:
    for statement in impact.ddl:
        yield from style.wrap(statement, "    table: ", "        ")
    if impact.note is not None:
        yield from style.wrap(impact.note, "    table: ", "        ")
    readers = [f"{one.name} ({one.known_from})" for one in impact.consumers]
    if readers:
        yield from style.wrap(", ".join(readers), "    read by: ", "        ")
    if impact.owner is not None:
        yield f"    owner: {impact.owner}"


def _common_fixes(verdict: Verdict) -> dict[str, str | None]:
    """Return each rule of lint that has findings, with their fix; None if they have several."""
    found: dict[str, set[str]] = {}
    for one in verdict.reported:
        if one.finding.rule in LINT_RULES:
            found.setdefault(one.finding.rule, set()).add(one.finding.fix)
    return {rule: min(found[rule]) if len(found[rule]) == 1 else None for rule in sorted(found)}


def _finding_line(
    group: Sequence[LocatedFinding], style: Style, fixes: Mapping[str, str | None]
) -> Iterator[str]:
    """Yield a finding of lint as `FILE:LINE:COLUMN: error[RULE]: message`, as compilers do."""
    first = group[0]
    head = f"{first.severity}[{first.finding.rule}]"
    remarks = _remarks(group)
    if fixes[first.finding.rule] is not None:  # it is below, with the rule
        remarks = ((label, text) for label, text in remarks if label != "fix")
    notes = "".join(f"; {label}: {text}" for label, text in remarks)
    location = f"{first.file}:{first.region.line}:{first.region.column}: "
    painted = style.paint(head, _RED if first.refuses else _YELLOW)
    for line in style.wrap(f"{head}: {first.finding.message}{notes}", location, "  "):
        yield line.replace(head, painted, 1)


def _explained(fixes: Mapping[str, str | None], style: Style) -> Iterator[str]:
    """Yield each rule of lint that has findings, with the fix that they share."""
    if not fixes:
        return
    yield ""
    for rule, fix in fixes.items():
        shared = f"; fix: {fix}" if fix else ""
        yield from style.wrap(f"{title_of(rule)}{shared}", f"{rule}: ", "  ")
    yield ""


def _clusters(groups: Iterable[list[LocatedFinding]]) -> list[list[list[LocatedFinding]]]:
    """Put groups together that are at one place and have one fix: one edit mends them all."""
    clusters: dict[object, list[list[LocatedFinding]]] = {}
    for group in groups:
        place = (group[0].file, group[0].region, group[0].severity, tuple(_remarks(group)))
        clusters.setdefault(place, []).append(group)
    return list(clusters.values())


def _findings(cluster: Sequence[Sequence[LocatedFinding]], style: Style) -> Iterator[str]:
    """Yield the messages of one cluster, the excerpt, and the remarks."""
    first, group = cluster[0][0], cluster[0]
    word = first.severity
    colour = _RED if first.refuses else _YELLOW
    for finding in (group[0].finding for group in cluster):
        head = style.paint(f"{word}[{finding.rule}]", colour)
        for line in style.wrap(finding.message, f"{word}[{finding.rule}]: ", "  "):
            yield line.replace(f"{word}[{finding.rule}]", head, 1)
    gutter = " " * len(str(first.region.line + _MAX_LINES))
    place = f"{first.region.line}:{first.region.column}" if first.lines else "deleted"
    location = f"{first.file}:{place}"
    yield f"{style.paint(f'{gutter}-->', _BLUE)} {location}"
    yield from _excerpt(first, gutter, style)
    for label, text in _remarks(group):
        lead = f"{gutter} = {label}: "
        painted = f"{style.paint(f'{gutter} =', _BLUE)} {style.paint(label, _BOLD)}: "
        for line in style.wrap(text, lead, f"{gutter}   "):
            yield line.replace(lead, painted, 1)


def _excerpt(one: LocatedFinding, gutter: str, style: Style) -> Iterator[str]:
    """Yield the lines of a finding, with the faulty part underlined."""
    if not one.lines:
        return
    bar = style.paint(f"{gutter} |", _BLUE)
    room = max((style.width or _PLAIN_COLUMNS) - len(gutter) - 3, _MIN_COLUMNS)
    yield bar
    for number, line in enumerate(one.lines[:_MAX_LINES], start=one.region.line):
        label = style.paint(f"{number:>{len(gutter)}} |", _BLUE)
        mark = one.mark
        here = mark is not None and mark.line == mark.end_line == number
        text, marks = _fitted(line, mark if here else None, room)
        yield f"{label} {text}"
        if marks:
            under = f"{marks} {title_of(one.finding.rule)}"
            color = _RED if one.refuses else _YELLOW
            yield f"{bar} {style.paint(under if len(under) <= room else marks, color)}"
    if one.region.end_line >= one.region.line + _MAX_LINES:
        yield f"{bar} ..."
    yield bar


def _fitted(line: str, mark: Region | None, room: int) -> tuple[str, str]:
    """Return a line, and the marks below it, in `room` columns: a long line is cut around them."""
    first, last = (mark.column - 1, mark.end_column - 1) if mark is not None else (0, 0)
    begin, end = 0, len(line)
    if _cells(line) > room:
        kept = room - 2 * len(_CUT)
        begin = 0 if last <= kept else max(0, first - kept // 4)
        end = min(end, begin + kept)
    head, tail = _CUT if begin else "", _CUT if end < len(line) else ""
    text = f"{head}{line[begin:end]}{tail}".replace("\t", _TAB)
    if mark is None:
        return text, ""
    indent = " " * _cells(head + line[begin:first])
    return text, indent + "^" * max(1, _cells(line[first : min(last, end)]))


def _cells(text: str) -> int:
    """Return the width of a text in columns of a terminal."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    combining = sum(unicodedata.combining(char) > 0 for char in text)
    return len(text.replace("\t", _TAB)) + wide - combining


def _remarks(group: Sequence[LocatedFinding]) -> Iterator[tuple[str, str]]:
    first = group[0]
    for label in dict.fromkeys(one.against for one in group if one.against):
        yield "against", label
    if first.finding.fix:
        yield "fix", first.finding.fix
    if first.is_warning:
        yield "policy", warning_reason(first)
    if first.waiver is not None:
        yield first.waiver.term, first.waiver.reason
    for evidence in usage_of(group):
        yield "usage", evidence
    if first.expired is not None:
        yield f"was waived until {first.expired.until}", first.expired.reason
