"""The question: may this schema follow those versions, at this level and policy?

`check_level` is the one verdict of the registry and of the gate. A change that passes in a pull
request is never refused at registration. `stricter_findings` warns of what it lets pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headworks.compatibility._budget import MAX_FINDINGS, Budget
from headworks.compatibility._finding import Finding, Level, Policy, Version
from headworks.compatibility._growth import Growth
from headworks.compatibility._hive import column_problems, table_findings
from headworks.compatibility._resolution import resolution_findings
from headworks.compatibility._rules import RULES
from headworks.compatibility._wording import Sides, has_path
from headworks.schema._model import Schema

# Rules on the type of a field. Their advice is to keep the field, or to add one beside it.
_OF_TYPES: Final = ("HW002", "HW004", "HW104", "HW105", "HW106", "HW201", "HW204")


def check_pair(reader: Schema, writer: Schema, policy: Policy = Policy.AVRO) -> list[Finding]:
    """Return every reason why `reader` cannot decode data of `writer`; empty if it always can.

    Under the `warehouse` policy, `reader` is also taken as the schema that follows `writer`, and
    changes that a table cannot follow are reported.
    """
    budget = Budget()
    has_table = policy is Policy.WAREHOUSE
    sides = Sides(has_table=has_table)
    found = resolution_findings(reader, writer, policy, sides, budget)
    if has_table:
        found += table_findings(reader, writer, budget)
    return found


def check_level(
    new: Schema,
    history: Sequence[Version],
    level: Level,
    policy: Policy = Policy.AVRO,
    *,
    most_steps: int | None = None,
) -> list[Finding]:
    """Return every reason why `new` may not follow `history` (oldest first), for all versions.

    The newest version comes first. For each: data that new consumers cannot read, then data that
    old consumers cannot read, then changes that its table cannot follow. Without history, only the
    `warehouse` policy has findings: columns that no table can have. At level NONE there are none.
    Beyond MAX_FINDINGS, each failing version has only one. UsageError if more than `most_steps` are
    needed, or than any question may cost (`Budget`).
    """
    if level is Level.NONE:
        return []
    has_table = policy is Policy.WAREHOUSE
    if not history:
        return column_problems(new)[:MAX_FINDINGS] if has_table else []
    ordered = sorted(history, key=lambda version: version.number, reverse=True)
    budget, growth = Budget() if most_steps is None else Budget(most_steps), Growth(new)
    found: list[Finding] = []
    for old in ordered if level.transitive else ordered[:1]:
        if growth.covers(old.schema):
            continue
        before = len(found)
        if level.backward:
            sides = Sides(None, old.number, between_versions=True, has_table=has_table)
            _add(found, resolution_findings(new, old.schema, policy, sides, budget))
        if level.forward:
            sides = Sides(old.number, None, between_versions=True, has_table=has_table)
            _add(found, resolution_findings(old.schema, new, policy, sides, budget))
        if has_table:
            _add(found, table_findings(new, old.schema, budget, old.number))
        if old is not ordered[0]:
            found[before:] = [_with_fix(one, ordered[0].schema) for one in found[before:]]
    return found


def _with_fix(finding: Finding, latest: Schema) -> Finding:
    """Return a finding on an older version, with the fix for a name that `latest` has not."""
    if finding.rule not in _OF_TYPES or not finding.path or has_path(latest, finding.path):
        return finding
    name = finding.path.rpartition(".")[2].strip("[]{}")
    fix = f'give the new field another name: "{name}" was another field, which the last version '
    return replace(finding, fix=f"{fix}does not have")


def stricter_findings(
    new: Schema, history: Sequence[Version], level: Level, policy: Policy, strictest: Policy
) -> list[Finding]:
    """Return the findings that `strictest` has and `policy` does not, as `check_level` does."""
    if policy.includes(strictest):
        return []
    found = check_level(new, history, level, strictest)
    return [one for one in found if not policy.includes(RULES[one.rule].policy)]


def _add(found: list[Finding], more: list[Finding]) -> None:
    found += more[: max(MAX_FINDINGS - len(found), 1)]
