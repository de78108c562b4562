"""The question people ask: may this schema follow those versions, at that level and policy?

`check_level` is the one verdict of the registry and of the gate, so that what passes in a pull
request cannot be refused at registration.
"""

from __future__ import annotations

from collections.abc import Sequence

from headworks.compatibility.finding import Finding, Level, Policy, Version
from headworks.compatibility.resolution import resolve
from headworks.compatibility.table import table_findings
from headworks.compatibility.words import Sides
from headworks.schema.model import Schema

__all__ = ["check_level", "check_pair"]


def check_pair(reader: Schema, writer: Schema, policy: Policy = Policy.AVRO) -> list[Finding]:
    """Every reason why `reader` cannot decode data of `writer`; empty if it always can.

    Under the `warehouse` policy also what a table of `writer` cannot follow when `reader` is the
    schema that comes next.
    """
    found = resolve(reader, writer, policy, Sides())
    if policy is Policy.WAREHOUSE:
        found += table_findings(reader, writer)
    return found


def check_level(
    new: Schema, history: Sequence[Version], level: Level, policy: Policy = Policy.AVRO
) -> list[Finding]:
    """Every reason why `new` may not follow `history` (oldest first), all versions named.

    Newest version first; for each, what new consumers cannot read, then what old ones cannot,
    then what its table cannot follow. No history, or level NONE: no findings.
    """
    if level is Level.NONE or not history:
        return []
    ordered = sorted(history, key=lambda version: version.number, reverse=True)
    found: list[Finding] = []
    for old in ordered if level.transitive else ordered[:1]:
        if level.backward:
            sides = Sides(None, old.number, between_versions=True)
            found += resolve(new, old.schema, policy, sides)
        if level.forward:
            sides = Sides(old.number, None, between_versions=True)
            found += resolve(old.schema, new, policy, sides)
        if policy is Policy.WAREHOUSE:
            found += table_findings(new, old.schema, old.number)
    return found
