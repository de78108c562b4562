"""The compatibility model: one verdict for the registry, the gate and everything that asks.

- `finding`: levels, policies, versions and findings, the values of the question and the answer.
- `rules`: the catalogue of stable rule ids.
- `resolution`: Avro's schema resolution, equal in verdict to Avro Java 1.12.1.
- `soundness`: what Java lets through although data does not survive it (`strict`).
- `table`: what a Hive table on Parquet cannot follow (`warehouse`).
- `budget`: how much work one question may cost.
- `levels`: the question itself, `check_level` and `check_pair`.

Pure: no files, no network, no clock.
"""

from headworks.compatibility._finding import Finding, Level, Policy, Version
from headworks.compatibility._levels import check_level, check_pair
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
]
