"""The rules of the gate beyond compatibility: those of the catalog, and those of lint.

Ids follow those of `headworks.compatibility._rules` and are as stable: 301-399 the catalog,
401-499 lint. Each is documented in docs/compatibility.md; a test fails on one that is not.
"""

from __future__ import annotations

from typing import Final

from headworks.compatibility import RULES

CATALOG_RULES: Final = {
    "HW301": ("INVALID_SCHEMA", "not valid in an Avro schema"),
    "HW302": ("SUBJECT_DELETED", "a subject whose file is gone"),
    "HW303": ("REGISTRY_REFUSES", "the registry refuses for a reason of its own"),
    "HW304": ("MESSAGES_UNREADABLE", "messages of the topic that the schema cannot read"),
}
LINT_RULES: Final = {
    "HW401": ("UNDOCUMENTED", "every record, field, and enum has a doc"),
    "HW402": ("NAMING", "types UpperCamel, fields lower_snake, enum symbols UPPER_SNAKE"),
    "HW403": ("NULLABLE_WITHOUT_DEFAULT", "a field that allows null has a default"),
    "HW404": ("NULL_NOT_FIRST", "null comes first in a union whose default is null"),
    "HW405": ("NO_NAMESPACE", "an event's record has a namespace"),
    "HW406": ("NO_EVENT_TIME", "an event has an event time"),
    "HW407": ("RESERVED_WORD", "no field is named like a reserved word of Hive"),
    "HW408": ("CASE_DUPLICATE", "no two fields differ in case only"),
    "HW409": ("ENCODES_TO_NOTHING", "an event has at least one byte"),
    "HW410": ("NO_VALUE", "a record does not need itself to exist"),
    "HW411": ("NO_COLUMN", "under policy warehouse, every field has a column"),
    "HW412": ("REPEATED_MEMBER", "no member of an object is written twice"),
}
_ALL: Final = {
    **{rule.id: (rule.kind, rule.title) for rule in RULES.values()},
    **CATALOG_RULES,
    **LINT_RULES,
}


def kind_of(rule: str) -> str:
    """Return the kind of a rule's findings."""
    return _ALL[rule][0]


def title_of(rule: str) -> str:
    """Return a rule in a few words."""
    return _ALL[rule][1]
