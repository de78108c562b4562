"""The schema model: an Avro schema parsed once into typed nodes that every part walks.

- `_model`: the nodes (Primitive, Fixed, EnumType, Array, MapType, Union, Record, Field).
- `_parse`, `_attributes`: text to nodes, as strict as Avro Java.
- `_defaults`, `_default_fold`: whether a JSON value is a default, and its value.
- `_quoting`: values as an error message shows them.
- `_canonical`: the printed forms and fingerprints, equal to Avro Java's.
- `_difference`: the changes between two schemas, field by field.
- `_governance`: what Headworks itself reads from a schema (topic, event time, key).
- `_sensitive`: the paths of sensitive values.
"""

from headworks.schema._governance import (
    Governance,
    governance_of,
    key_subject_of,
    subject_of,
    topic_of,
)
from headworks.schema._model import (
    Array,
    EnumType,
    Field,
    Fixed,
    Logical,
    MapType,
    Primitive,
    Record,
    Schema,
    Union,
)
from headworks.schema._parse import parse

__all__ = [
    "Array",
    "EnumType",
    "Field",
    "Fixed",
    "Governance",
    "Logical",
    "MapType",
    "Primitive",
    "Record",
    "Schema",
    "Union",
    "governance_of",
    "key_subject_of",
    "parse",
    "subject_of",
    "topic_of",
]
