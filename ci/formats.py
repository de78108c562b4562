"""The verdict for tools: JSON, GitHub annotations, JUnit, SARIF 2.1.0, GitLab, Markdown.

Rules:

- Each format is a pure function of the verdict. Waived findings, and those about the unused, stay
  visible as notes, and warnings as warnings.
- A fault that breaks the readers of many versions in the same way is reported once, except in JSON.
  GitHub shows ten annotations per step, and ten versions must not hide the next fault.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree

from headworks import __version__
from headworks._ci.report import grouped, summary, text_report, usage_of, warning_reason
from headworks._ci.rules import kind_of, title_of
from headworks._ci.verdict import Impact, LocatedFinding, Verdict

_GITHUB_LEVELS: Final = {
    "error": "error",
    "warning": "warning",
    "waived": "notice",
    "unused": "notice",
}
_GITLAB_SEVERITIES: Final = {
    "error": "major",
    "warning": "minor",
    "waived": "info",
    "unused": "info",
}


def render(verdict: Verdict, form: str) -> str:
    """Return the verdict in one of FORMATS."""
    return FORMATS[form](verdict)


def _json(verdict: Verdict) -> str:
    return json.dumps(verdict.as_dict(), indent=2, ensure_ascii=False) + "\n"


def _github(verdict: Verdict) -> str:
    """Return workflow commands, which annotate the lines of a pull request."""
    lines = []
    for group in grouped(verdict.reported):
        one = group[0]
        level = _GITHUB_LEVELS[one.severity]
        region = one.region
        properties = {
            "file": one.file,
            "line": str(region.line),
            "endLine": str(region.end_line),
            "title": f"{one.finding.rule} {one.finding.kind}",
        }
        if region.line == region.end_line:
            properties |= {"col": str(region.column), "endColumn": str(region.end_column)}
        text = ",".join(f"{key}={_github_escape(v, True)}" for key, v in properties.items())
        message = f"{_message(group)}\nFix: {one.finding.fix}"
        lines.append(f"::{level} {text}::{_github_escape(message)}")
    return "\n".join([*lines, summary(verdict)]) + "\n"


def _github_escape(text: str, in_property: bool = False) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if in_property else text


def _junit(verdict: Verdict) -> str:
    failures = sum(one.refused for one in verdict.subjects)
    suite = ElementTree.Element(
        "testsuite",
        name="headworks schema check",
        tests=str(len(verdict.subjects)),
        failures=str(failures),
        errors="0",
        skipped="0",
    )
    for one in verdict.subjects:
        case = ElementTree.SubElement(
            suite, "testcase", classname="schemas", name=one.subject or one.file, file=one.file
        )
        standing = [g for g in grouped(one.findings) if g[0].refuses]
        warnings = grouped(one.warnings)
        unused = [g for g in grouped(one.findings) if g[0].severity == "unused"]
        if standing:
            message = f"{len(standing)} finding(s): {_message(standing[0])}"
            failure = ElementTree.SubElement(case, "failure", message=message, type="incompatible")
            failure.text = "\n".join(map(_junit_line, standing))
        if warnings or unused:
            # JUnit has no warnings: test reports show the output of a test that passed.
            output = ElementTree.SubElement(case, "system-out")
            output.text = "\n".join(
                f"{group[0].severity}: {_junit_line(group)}" for group in (*warnings, *unused)
            )
    ElementTree.indent(suite)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(suite, encoding="unicode")
        + "\n"
    )


def _junit_line(group: Sequence[LocatedFinding]) -> str:
    one = group[0]
    location = f"{one.file}:{one.region.line}:{one.region.column}"
    return f"{location}: {one.finding.rule} {_message(group)}\n  fix: {one.finding.fix}"


def _sarif(verdict: Verdict) -> str:
    used = sorted({one.finding.rule for one in verdict.reported})
    rules = [
        {
            "id": rule,
            "name": "".join(word.capitalize() for word in kind_of(rule).split("_")),
            "shortDescription": {"text": title_of(rule)},
        }
        for rule in used
    ]
    results = [
        _sarif_result(group, used.index(group[0].finding.rule))
        for group in grouped(verdict.reported)
    ]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "headworks", "version": __version__, "rules": rules}},
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def _sarif_result(group: Sequence[LocatedFinding], index: int) -> dict[str, object]:
    one = group[0]
    region = one.region
    result: dict[str, object] = {
        "ruleId": one.finding.rule,
        "ruleIndex": index,
        "level": "warning" if one.is_warning else "error",
        "message": {"text": f"{_message(group)}. Fix: {one.finding.fix}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(one.file)},
                    "region": {
                        "startLine": region.line,
                        "startColumn": region.column,
                        "endLine": region.end_line,
                        "endColumn": region.end_column,
                    },
                }
            }
        ],
        "partialFingerprints": {"headworks/v1": _identity(one)},
    }
    if one.waiver is not None:
        result["suppressions"] = [{"kind": "external", "justification": one.waiver.reason}]
    elif one.severity == "unused":
        evidence = " ".join(usage_of(group))
        result["suppressions"] = [{"kind": "external", "justification": evidence}]
    return result


def _gitlab(verdict: Verdict) -> str:
    """Return Code Quality issues, identified by fingerprint."""
    issues = [
        {
            "description": f"{_message(group)}. Fix: {one.finding.fix}",
            "check_name": one.finding.rule,
            "fingerprint": _identity(one),
            "severity": _GITLAB_SEVERITIES[one.severity],
            "location": {
                "path": one.file,
                "lines": {"begin": one.region.line, "end": one.region.end_line},
            },
        }
        for group in grouped(verdict.reported)
        for one in group[:1]
    ]
    return json.dumps(issues, indent=2, ensure_ascii=False) + "\n"


def _message(group: Sequence[LocatedFinding]) -> str:
    """Return the message of a group, with the number of further versions."""
    one, more = group[0], len({one.against for one in group}) - 1
    message = one.finding.message + (f"; the same against {more} more" if more else "")
    message = ". ".join([message, *usage_of(group)])
    return f"{message} ({warning_reason(one)})" if one.severity == "warning" else message


def _identity(one: LocatedFinding) -> str:
    """Return an identity that the fault keeps in the next run, even on another line."""
    finding = one.finding
    proposed_reads = finding.reader_version is None
    pointer = finding.reader_pointer if proposed_reads else finding.writer_pointer
    parts = (one.file, finding.rule, finding.path, pointer, finding.fix, proposed_reads)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _markdown(verdict: Verdict) -> str:
    """Return the comment for a pull request: changes, findings, and the impact downstream."""
    mark = "❌" if verdict.refused else "✅"
    lines = [f"### {mark} Schema check: {summary(verdict)}"]
    told = [one for one in verdict.subjects if one.reported or (one.subject and one.changed)]
    if told:
        lines += ["", "| subject | file | verdict | |", "| --- | --- | --- | --- |"]
    for one in told:
        notes = _cell("; ".join(one.notes))
        lines.append(f"| {_cell(one.subject or '')} | `{one.file}` | {one.verdict} | {notes} |")
    for subject in verdict.subjects:
        for group in grouped(subject.reported):
            lines += _markdown_finding(group)
    for subject in verdict.subjects:
        if subject.impact is not None:
            lines += _markdown_impact(subject.subject or subject.file, subject.impact)
    return "\n".join(lines) + "\n"


def _markdown_finding(group: Sequence[LocatedFinding]) -> Iterator[str]:
    first = group[0]
    finding = first.finding
    mark = "⚠️ " if first.severity == "warning" else ""
    yield from (
        "",
        f"{mark}**{finding.rule}** `{first.file}:{first.region.line}` {finding.message}",
        "",
    )
    if first.lines:
        yield from _fenced("json", first.lines)
    yield f"Fix: {finding.fix}"
    against = dict.fromkeys(one.against for one in group if one.against)
    if against:
        yield from ("", f"Against: {'; '.join(against)}")
    if first.is_warning:
        yield from ("", f"Warning: {warning_reason(first)}")
    for evidence in usage_of(group):
        yield from ("", f"Usage: {evidence}")
    if first.waiver is not None:
        yield from ("", f"{first.waiver.term.capitalize()}: {first.waiver.reason}")
    if first.expired is not None:
        yield from ("", f"Was waived until {first.expired.until}: {first.expired.reason}")


def _markdown_impact(name: str, impact: Impact) -> Iterator[str]:
    lines = [*(f"{statement};" for statement in impact.ddl)]
    readers = ", ".join(f"{one.name} ({one.known_from})" for one in impact.consumers)
    if not (lines or readers or impact.note):
        return
    yield from ("", f"<details><summary>Downstream of {name}</summary>", "")
    yield from _fenced("sql", lines) if lines else ()
    for label, text in (("", impact.note), ("Read by: ", readers), ("Owner: ", impact.owner)):
        if text:
            yield from (f"{label}{text}", "")
    yield "</details>"


def _fenced(language: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield a code block, with a fence longer than any in the text."""
    fence = "`" * max(3, 1 + max(len(run) for run in re.findall("`*", "\n".join(lines))))
    yield from (f"{fence}{language}", *lines, fence)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


FORMATS: Final[Mapping[str, Callable[[Verdict], str]]] = {
    "text": text_report,
    "json": _json,
    "github": _github,
    "junit": _junit,
    "sarif": _sarif,
    "gitlab": _gitlab,
    "markdown": _markdown,
}
