"""The compatibility model: one verdict for the registry, the gate, and the console.

- `_finding`: levels, policies, versions, and findings.
- `_rules`: the catalog of stable rule ids.
- `_resolution`: Avro's schema resolution, equal in verdict to Avro Java 1.12.1.
- `_soundness`: data loss that Java allows (`strict`).
- `_hive`: changes that a Hive table on Parquet cannot follow (`warehouse`).
- `_growth`: versions that only lack fields, which need no walk.
- `_messages`, `_wording`: the text of findings.
- `_budget`: the work that one question may cost.
- `_levels`: the questions, `check_level`, `check_pair`, and `stricter_findings`.

Pure: no files, no network, no clock.
"""

from headworks.compatibility._finding import Finding, Level, Policy, Version
from headworks.compatibility._levels import check_level, check_pair, stricter_findings
from headworks.compatibility._rules import RULES, Rule

__all__ = [
    "RULES",
    "Finding",
    "Level",
    "Policy",
    "Rule",
    "Version",
    "check_level",
    "check_pair",
    "stricter_findings",
]
