"""How long each test module takes: workers get the longest first, so that all of them end together.

`python -m tests.lengths REPORT.xml` renews the table from a report of pytest's `--junit-xml`.

Rules: the table only orders modules. A module that is missing in it is short, and a wrong length
costs nothing but time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

TABLE = Path(__file__).with_suffix(".json")
_SHORT_SECONDS = 5


def lengths() -> dict[str, int]:
    """Return the seconds of the long modules, by their path in the repository."""
    table: dict[str, int] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def measured(report: str) -> dict[str, int]:
    """Return the table that a report of `--junit-xml` gives."""
    found: dict[str, float] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        module = case.get("classname", "").replace(".", "/") + ".py"
        found[module] = found.get(module, 0.0) + float(case.get("time", 0))
    return rounded(found)


def rounded(seconds: Mapping[str, float]) -> dict[str, int]:
    """Return the long modules with whole seconds, the longest first."""
    longest = sorted(seconds.items(), key=lambda one: (-round(one[1]), one[0]))
    return {module: round(length) for module, length in longest if length >= _SHORT_SECONDS}


if __name__ == "__main__":
    table = measured(Path(sys.argv[1]).read_text(encoding="utf-8"))
    TABLE.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
