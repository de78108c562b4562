"""Versions that only lack fields of the new one: the usual change, judged without a walk.

A large history is compared quickly this way. A version is covered if the new schema has all its
fields as the same nodes (see `shared` in `parse`), and the further fields may be added to any
record. Then no level and no policy has a finding.

Rule: it only says that there is no finding. Every other pair is walked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headworks.compatibility._columns import TypeLengths, name_problem, type_problem
from headworks.compatibility._hive import RESERVED_COLUMNS
from headworks.compatibility._soundness import default_problem
from headworks.schema._model import Field, Primitive, Record, Schema, named_types


@dataclass(slots=True)
class Growth:
    """A new schema, compared with many old ones."""

    new: Schema
    _may_be_added: dict[str, bool] = field(default_factory=dict)  # by the field's name

    def covers(self, old: Schema) -> bool:
        """Return whether nothing can be found against `old`; False if only a walk can say."""
        new = self.new
        if not isinstance(new, Record) or not isinstance(old, Record):
            return False
        if new.name != old.name or new.aliases or old.aliases:
            return False
        after, before = new.by_name, old.by_name
        for one in old.fields:
            if after.get(one.name) is not one or not one.shared or one.aliases:
                return False
        if len(before) == len(after):
            return True
        added = [one for one in new.fields if one.name not in before]
        return len(set(map(str.lower, after))) == len(after) and all(map(self._is_addable, added))

    def _is_addable(self, one: Field) -> bool:
        known = self._may_be_added.get(one.name)
        if known is None:
            known = self._may_be_added[one.name] = _is_addable(one)
        return known


def _is_addable(one: Field) -> bool:
    """Return whether a field has a default that all readers take, and a column in any table."""
    if one.aliases or not one.has_default or default_problem(one) is not None:
        return False
    if not one.shared and next(named_types(one.type), None) is not None:
        return False  # a name could stand for another type
    if one.name.lower() in RESERVED_COLUMNS or name_problem(one.name):
        return False
    return isinstance(one.type, Primitive) or not type_problem(TypeLengths().of(one.type))
