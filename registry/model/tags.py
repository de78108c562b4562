"""Inline tags: labels on the records and fields of a schema, in its text.

A tag is a string in the property `confluent:tags` of a record or a field. An entity is written as
its path: the record's full name (its namespace may be left out), and for a field a dot and its
name. Tags are part of the text, so a change of tags makes a new schema.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from headworks._registry.model import refusals
from headworks.schema import Schema
from headworks.schema._model import Json, Record, named_types

_PROPERTY = "confluent:tags"
_RECORD, _FIELD = "sr_record", "sr_field"


@dataclass(frozen=True, slots=True)
class Entity:
    """A record or a field of a schema: its path, and `sr_record` or `sr_field`."""

    path: str
    kind: str


Tags = Mapping[Entity, tuple[str, ...]]


def read_tags(value: object, name: str) -> Tags:
    """The member `name` of a request: [{schemaEntity: {entityPath, entityType}, tags: [..]}]."""
    if value is None:
        return {}
    found: dict[Entity, tuple[str, ...]] = {}
    for one in value if isinstance(value, list) else [None]:
        entity = one.get("schemaEntity") if isinstance(one, dict) else None
        tags = one.get("tags") if isinstance(one, dict) else None
        path = entity.get("entityPath") if isinstance(entity, dict) else None
        kind = str(entity.get("entityType")).lower() if isinstance(entity, dict) else ""
        is_list = isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)
        if not isinstance(path, str) or kind not in (_RECORD, _FIELD) or not is_list:
            raise refusals.invalid_schema(
                f"Invalid schema: `{name}` must be a list of "
                '{"schemaEntity": {"entityPath": .., "entityType": "sr_record" or "sr_field"}, '
                '"tags": [..]}'
            )
        key = Entity(path.removeprefix("."), kind)
        found[key] = (*found.get(key, ()), *cast(list[str], tags))
    return found


def inline_tags(schema: Schema) -> dict[Entity, tuple[str, ...]]:
    """Return the tags of a schema, outermost record first."""
    found: dict[Entity, tuple[str, ...]] = {}
    for record in named_types(schema):
        if not isinstance(record, Record):
            continue
        if tags := _tags_of(record.props):
            found[Entity(record.name, _RECORD)] = tags
        for one in record.fields:
            if tags := _tags_of(one.props):
                found[Entity(f"{record.name}.{one.name}", _FIELD)] = tags
    return found


def shown_tags(tags: Tags, wanted: Iterable[str]) -> list[dict[str, object]]:
    """Return the JSON of the entities that have a `wanted` tag ("*": any tag)."""
    names = set(wanted)
    return [
        {"schemaEntity": {"entityPath": one.path, "entityType": one.kind}, "tags": list(found)}
        for one, found in tags.items()
        if "*" in names or names.intersection(found)
    ]


def retagged(text: str, add: Tags, remove: Tags, *, lenient: bool = False) -> str:
    """Return the text with tags added and removed; ServiceError 42201 for a missing entity.

    With `lenient`, a missing entity is skipped.
    """
    try:
        root = json.loads(text)
    except (ValueError, RecursionError):
        raise refusals.invalid_schema("Invalid schema: the schema is not JSON") from None
    for entity in dict.fromkeys([*add, *remove]):
        node = next(_nodes(root, entity), None)
        if node is None:
            if lenient:
                continue
            raise refusals.invalid_schema(
                f"Invalid schema: no {entity.kind} {entity.path!r} in the schema to tag"
            )
        gone = remove.get(entity, ())
        tags = dict.fromkeys([*_tags_of(node), *add.get(entity, ())])
        kept = [tag for tag in tags if tag not in gone]
        node.pop(_PROPERTY, None)
        if kept:
            node[_PROPERTY] = kept
    return json.dumps(root, ensure_ascii=False)


def _tags_of(props: Mapping[str, Any]) -> tuple[str, ...]:
    found = props.get(_PROPERTY)
    return tuple(str(tag) for tag in found) if isinstance(found, list) else ()


def _nodes(root: Json, entity: Entity) -> Iterator[dict[str, Any]]:
    """Yield the objects of the text that define the entity."""
    record_path, _, field_name = entity.path.rpartition(".")
    for record, name in _records(root):
        simple = name.rpartition(".")[2]
        if entity.kind == _RECORD:
            if entity.path in (name, simple):
                yield record
        elif record_path in (name, simple):
            for one in record["fields"]:
                if isinstance(one, dict) and one.get("name") == field_name:
                    yield one


def _records(root: Json) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield every record that the text defines, with its full name, outermost first."""
    waiting: deque[tuple[Any, str]] = deque([(root, "")])
    while waiting:
        node, space = waiting.popleft()
        if isinstance(node, list):
            waiting.extend((branch, space) for branch in node)
        if not isinstance(node, dict):
            continue
        fields = node.get("fields")
        if isinstance(fields, list):
            simple = str(node.get("name"))
            given = node.get("namespace")
            inner = given if isinstance(given, str) else space
            if "." in simple:
                inner, _, simple = simple.rpartition(".")
            yield node, f"{inner}.{simple}" if inner else simple
            waiting.extend((one.get("type"), inner) for one in fields if isinstance(one, dict))
        else:
            waiting.extend((node.get(key), space) for key in ("type", "items", "values"))
