"""The question people ask: may this schema follow those versions, at that level and policy?

`check_level` is the one verdict of the registry and of the gate, so that what passes in a pull
request cannot be refused at registration.
"""

from __future__ import annotations

from collections.abc import Sequence

from headworks.compatibility._budget import MAX_FINDINGS, Budget
from headworks.compatibility._finding import Finding, Level, Policy, Version
from headworks.compatibility._hive import table_findings
from headworks.compatibility._resolution import resolution_findings
from headworks.compatibility._wording import Sides
from headworks.schema._model import Schema

__all__ = ["check_level", "check_pair"]


def check_pair(reader: Schema, writer: Schema, policy: Policy = Policy.AVRO) -> list[Finding]:
    """Every reason why `reader` cannot decode data of `writer`; empty if it always can.

    Under the `warehouse` policy also what a table of `writer` cannot follow when `reader` is the
    schema that comes next.
    """
    budget = Budget()
    found = resolution_findings(reader, writer, policy, Sides(), budget)
    if policy is Policy.WAREHOUSE:
        found += table_findings(reader, writer, budget)
    return found


def check_level(
    new: Schema, history: Sequence[Version], level: Level, policy: Policy = Policy.AVRO
) -> list[Finding]:
    """Every reason why `new` may not follow `history` (oldest first), all versions named.

    Newest version first; for each, what new consumers cannot read, then what old ones cannot,
    then what its table cannot follow. No history, or level NONE: no findings. Of more than
    MAX_FINDINGS the rest is left out, but each version that fails is named.
    """
    if level is Level.NONE or not history:
        return []
    ordered = sorted(history, key=lambda version: version.number, reverse=True)
    budget = Budget()
    found: list[Finding] = []
    for old in ordered if level.transitive else ordered[:1]:
        if level.backward:
            sides = Sides(None, old.number, between_versions=True)
            _add(found, resolution_findings(new, old.schema, policy, sides, budget))
        if level.forward:
            sides = Sides(old.number, None, between_versions=True)
            _add(found, resolution_findings(old.schema, new, policy, sides, budget))
        if policy is Policy.WAREHOUSE:
            _add(found, table_findings(new, old.schema, budget, old.number))
    return found


def _add(found: list[Finding], more: list[Finding]) -> None:
    found += more[: max(MAX_FINDINGS - len(found), 1)]
