"""The verdict for tools: JSON, GitHub annotations, JUnit, SARIF 2.1.0, GitLab, Markdown.

Each form is a pure function of the verdict. Waived findings stay visible, as notes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Final
from xml.etree import ElementTree

from ci.gate import PlacedFinding, Verdict
from ci.report import grouped, summary, text_report
from ci.rules import CATALOGUE_RULES, LINT_RULES
from headworks import __version__
from headworks.compatibility import RULES

__all__ = ["FORMATS", "render"]


def render(verdict: Verdict, form: str) -> str:
    """The verdict in one of FORMATS."""
    return FORMATS[form](verdict)


def _json(verdict: Verdict) -> str:
    return json.dumps(verdict.as_dict(), indent=2, ensure_ascii=False) + "\n"


def _github(verdict: Verdict) -> str:
    """Workflow commands: an annotation on the line, in the pull request."""
    lines = []
    for one in verdict.findings:
        level = "error" if one.waiver is None else "notice"
        place = one.position
        properties = {
            "file": one.file,
            "line": str(place.line),
            "endLine": str(place.end_line),
            "title": f"{one.finding.rule} {one.finding.kind}",
        }
        if place.line == place.end_line:
            properties |= {"col": str(place.column), "endColumn": str(place.end_column)}
        text = ",".join(f"{key}={_github_escape(v, True)}" for key, v in properties.items())
        message = f"{one.finding.message}\nFix: {one.finding.fix}"
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
        standing = [f for f in one.findings if f.waiver is None]
        if standing:
            message = f"{len(standing)} finding(s): {standing[0].finding.message}"
            failure = ElementTree.SubElement(case, "failure", message=message, type="incompatible")
            failure.text = "\n".join(
                f"{f.file}:{f.position.line}:{f.position.column}: {f.finding.rule} "
                f"{f.finding.message}\n  fix: {f.finding.fix}"
                for f in standing
            )
    ElementTree.indent(suite)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(suite, encoding="unicode")
        + "\n"
    )


def _titles() -> dict[str, tuple[str, str]]:
    rules = {rule.id: (rule.kind, rule.title) for rule in RULES.values()}
    return {**rules, **CATALOGUE_RULES, **LINT_RULES}


def _sarif(verdict: Verdict) -> str:
    titles = _titles()
    used = sorted({one.finding.rule for one in verdict.findings})
    rules = [
        {
            "id": rule,
            "name": "".join(word.capitalize() for word in titles[rule][0].split("_")),
            "shortDescription": {"text": titles[rule][1]},
        }
        for rule in used
    ]
    results = [_sarif_result(one, used.index(one.finding.rule)) for one in verdict.findings]
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


def _sarif_result(one: PlacedFinding, index: int) -> dict[str, object]:
    place = one.position
    result: dict[str, object] = {
        "ruleId": one.finding.rule,
        "ruleIndex": index,
        "level": "error",
        "message": {"text": f"{one.finding.message}. Fix: {one.finding.fix}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": one.file},
                    "region": {
                        "startLine": place.line,
                        "startColumn": place.column,
                        "endLine": place.end_line,
                        "endColumn": place.end_column,
                    },
                }
            }
        ],
        "partialFingerprints": {"headworks/v1": _identity(one)},
    }
    if one.waiver is not None:
        result["suppressions"] = [{"kind": "external", "justification": one.waiver.reason}]
    return result


def _gitlab(verdict: Verdict) -> str:
    """Code Quality: one issue each, told apart by fingerprint."""
    issues = [
        {
            "description": f"{one.finding.message}. Fix: {one.finding.fix}",
            "check_name": one.finding.rule,
            "fingerprint": _identity(one),
            "severity": "major" if one.waiver is None else "info",
            "location": {
                "path": one.file,
                "lines": {"begin": one.position.line, "end": one.position.end_line},
            },
        }
        for one in verdict.findings
    ]
    return json.dumps(issues, indent=2, ensure_ascii=False) + "\n"


def _identity(one: PlacedFinding) -> str:
    """The same finding has the same identity in the next run, wherever its line is by then."""
    finding = one.finding
    parts = (one.file, finding.rule, finding.path, finding.reader_pointer, one.against)
    versions = (finding.reader_version, finding.writer_version)
    return hashlib.sha256(repr((parts, versions)).encode()).hexdigest()


def _markdown(verdict: Verdict) -> str:
    """The comment for a pull request."""
    mark = "❌" if verdict.refused else "✅"
    lines = [f"### {mark} Schema check: {summary(verdict)}", ""]
    if verdict.subjects:
        lines += ["| subject | file | verdict | |", "| --- | --- | --- | --- |"]
    for one in verdict.subjects:
        notes = _cell("; ".join(one.notes))
        lines.append(f"| {_cell(one.subject or '')} | `{one.file}` | {one.verdict} | {notes} |")
    for subject in verdict.subjects:
        for group in grouped(subject.findings):
            first = group[0]
            finding = first.finding
            lines += [
                "",
                f"**{finding.rule}** `{first.file}:{first.position.line}` {finding.message}",
                "",
                "```json",
                *first.lines,
                "```",
                f"Fix: {finding.fix}",
            ]
            against = dict.fromkeys(one.against for one in group if one.against)
            if against:
                lines += ["", f"Against: {'; '.join(against)}"]
            if first.waiver is not None:
                lines += ["", f"Waived until {first.waiver.until}: {first.waiver.reason}"]
    return "\n".join(lines) + "\n"


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
