"""The catalog of rules: every reason to refuse a change, with a stable id.

An id is never reused and never changes its meaning, because people write it in waivers and search
for it. Ids below 100 are Avro's own (policy `avro`). Ids from 101 are data loss that Avro allows
(`strict`). Ids from 201 are changes that a Hive table cannot follow (`warehouse`). A test fails on
an id that docs/compatibility.md does not document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headworks.compatibility._finding import Policy


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its id, Java's or our name of the incompatibility, the policy that adds it."""

    id: str
    kind: str
    policy: Policy
    title: str


_ALL = (
    Rule(
        "HW001",
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        Policy.AVRO,
        "a field the writer does not have needs a default",
    ),
    Rule("HW002", "TYPE_MISMATCH", Policy.AVRO, "a type that the writer's type does not become"),
    Rule("HW003", "NAME_MISMATCH", Policy.AVRO, "a named type under another name"),
    Rule("HW004", "FIXED_SIZE_MISMATCH", Policy.AVRO, "a fixed of another size"),
    Rule("HW005", "MISSING_ENUM_SYMBOLS", Policy.AVRO, "an enum symbol the reader does not know"),
    Rule("HW006", "MISSING_UNION_BRANCH", Policy.AVRO, "a type the reader's union does not hold"),
    Rule("HW007", "AMBIGUOUS_FIELD", Policy.AVRO, "a name and an alias both match the writer"),
    Rule("HW101", "FIELD_FEEDS_TWO", Policy.STRICT, "one writer field feeds two reader fields"),
    Rule("HW102", "AMBIGUOUS_BRANCH", Policy.STRICT, "union branches that share a simple name"),
    Rule("HW103", "UNUSABLE_DEFAULT", Policy.STRICT, "a default that cannot be decoded"),
    Rule("HW104", "DECIMAL_MISMATCH", Policy.STRICT, "a decimal of another precision or scale"),
    Rule("HW105", "LOGICAL_TYPE_MISMATCH", Policy.STRICT, "a logical type of another meaning"),
    Rule("HW106", "BYTES_TO_STRING", Policy.STRICT, "bytes read as a string"),
    Rule("HW107", "ALIAS_IN_USE", Policy.STRICT, "an alias that is the name of a living type"),
    Rule("HW108", "ALIAS_UNREACHED", Policy.STRICT, "a field alias under another namespace"),
    Rule("HW109", "BRANCH_MOVED", Policy.STRICT, "an enum or fixed of a union, in a new namespace"),
    Rule("HW201", "COLUMN_TYPE", Policy.WAREHOUSE, "a column type old files cannot be read as"),
    Rule("HW202", "COLUMN_CASE", Policy.WAREHOUSE, "columns that differ in case only"),
    Rule("HW203", "COLUMN_RECURSIVE", Policy.WAREHOUSE, "a recursive type has no column type"),
    Rule("HW204", "COLUMN_UNION", Policy.WAREHOUSE, "a union that changes the column's shape"),
    Rule("HW205", "COLUMN_RENAMED", Policy.WAREHOUSE, "an alias does not rename a column"),
    Rule("HW206", "COLUMN_RESERVED", Policy.WAREHOUSE, "a column name that tables use themselves"),
    Rule("HW207", "COLUMN_TOO_LONG", Policy.WAREHOUSE, "a column that a metastore cannot store"),
)
RULES: Final[dict[str, Rule]] = {rule.id: rule for rule in _ALL}
