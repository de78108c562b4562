"""A result as Markdown: the tables of docs/benchmarks.md are written by this and by nobody.

Rules: pure text in, text out. Every bar, every measurement, every missing peer and every note of
the result is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headworks.errors import UsageError


def markdown(result: Mapping[str, Any]) -> str:
    """The result's tables."""
    return "\n".join(_lines(result)) + "\n"


def replace_section(document: str, result: Mapping[str, Any]) -> str:
    """The document with this benchmark's tables in place of those between its two marks."""
    name = result["benchmark"]
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    before, found, rest = document.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise UsageError(
            f"the document has no place for the tables of {name!r}",
            fix=f"put the lines `{begin.strip()}` and `{end}` where they belong",
        )
    return before + begin + "\n" + markdown(result) + "\n" + end + after


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    machine = result["machine"]
    yield (
        f"{result['title']}. Run at {machine['date']} with version {machine['version']}, in "
        f"{result['seconds']} s{' (`--quick`)' if result['quick'] else ''}. Machine: "
        f"{machine['cores']} x {machine['processor']}, {machine['memory_gb']} GB, "
        f"{machine['system']}, Python {machine['python']}. Load before the run: "
        f"{machine['load_before']}."
    )
    if result["bars"]:
        yield from ("", "| bar | promised | got | |", "|---|---|---|---|")
        for name, bar in result["bars"].items():
            got = "not measured" if bar["got"] is None else _number(bar["got"], bar["unit"])
            promised = f"{bar['sense']} {_number(bar['bar'], bar['unit'])}"
            yield f"| {name} | {promised} | {got} | {'met' if bar['ok'] else '**missed**'} |"
    yield from ("", "| what | who | median | lowest - highest | CPU |", "|---|---|---|---|---|")
    for found in result["measurements"].values():
        yield _row(found)
    if result["missing"]:
        yield ""
        yield from (f"- Missing: {who}: {why}" for who, why in result["missing"].items())
    if result["notes"]:
        yield ""
        yield from (f"- {note}" for note in result["notes"])


def _row(found: Mapping[str, Any]) -> str:
    unit = found["unit"]
    spread = ""
    if len(found["rounds"]) > 1:
        spread = f"{_number(found['low'])} - {_number(found['high'])}"
    cpu = _number(found["cpu"]["median"], found["cpu"]["unit"]) if "cpu" in found else ""
    median = _number(found["median"], unit)
    return f"| {found['what']} | {found['who']} | {median} | {spread} | {cpu} |"


def _number(value: float, unit: str = "") -> str:
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{text}{unit}" if unit == "x" else f"{text} {unit}".strip()
