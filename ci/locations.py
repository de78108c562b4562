"""The locations of findings: from a JSON pointer to the lines of a file of the catalog."""

from __future__ import annotations

import json
from dataclasses import replace

from headworks._ci.catalog import NOT_UTF8, SchemaCatalog, SchemaFile
from headworks._ci.governance import Waiver
from headworks._ci.rules import CATALOG_RULES
from headworks._ci.source_map import Region, SourceMap
from headworks._ci.verdict import LocatedFinding
from headworks.compatibility import Finding
from headworks.errors import SchemaError
from headworks.schema._json_text import without_comments


def locate(
    one: SchemaFile,
    finding: Finding,
    *,
    texts: SchemaCatalog,
    against: str | None = None,
    waiver: Waiver | None = None,
) -> LocatedFinding:
    """Locate a finding in `one`, or in the file that defines the type of the finding."""
    proposed = finding.reader_version is None
    pointer = finding.reader_pointer if proposed else finding.writer_pointer
    path, _, inside = pointer.rpartition("#")
    file = path if path in texts.texts else one.path
    source = texts.source(file)
    region = (
        source.region(inside) if one.error is None else _region_of_error(one.error, source, inside)
    )
    mark = source.value(f"{inside}/name") if region.line < region.end_line else region
    last = min(region.end_line, region.line + 7)
    lines = tuple(source.line(number) for number in range(region.line, last + 1))
    plain = replace(
        finding,
        reader_pointer=finding.reader_pointer.removeprefix(f"{one.path}#"),
        writer_pointer=finding.writer_pointer.rpartition("#")[2]
        if proposed
        else finding.writer_pointer.removeprefix(f"{one.path}#"),
    )
    return LocatedFinding(plain, one.subject, file, region, lines, against, waiver, mark=mark)


def _region_of_error(error: SchemaError, source: SourceMap, pointer: str) -> Region:
    """Return the region of an error; text that is not JSON has lines, but no pointers."""
    if error.rule == "utf-8":
        wrong = NOT_UTF8.search(source.text)
        return source.at(0 if wrong is None else wrong.start())
    if error.rule == "json":
        try:
            json.loads(without_comments(source.text))
        except json.JSONDecodeError as found:
            return source.at(found.pos)
        except (ValueError, RecursionError):
            return source.at(0)
    return source.region(pointer)


def refusal(one: SchemaFile) -> Finding:
    """Return the finding of a file that could not be parsed."""
    assert one.error is not None
    return Finding(
        rule="HW301",
        kind=CATALOG_RULES["HW301"][0],
        message=one.error.reason[:1].upper() + one.error.reason[1:],
        fix=one.error.fix or "correct the schema",
        path="",
        reader_pointer=one.error.pointer,
        writer_pointer="",
    )
