"""The maximum size of a schema: characters, depth, fields, and the length of a name.

Rule: the limits are checked before the schema is parsed, in one pass and without recursion. A
schema that is too large costs no more than reading it. A small one is not even decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headworks._registry.model import refusals
from headworks._registry.model.refusals import ServiceError
from headworks.errors import SchemaError
from headworks.schema._json_text import decode

# A record in a record takes three levels of JSON; defaults and attributes take the rest.
_JSON_LEVELS, _JSON_REST = 3, 50
_MAX_NAME_CHARACTERS = 1000
_HALF_NAME = _MAX_NAME_CHARACTERS // 2


@dataclass(frozen=True, slots=True)
class SchemaLimits:
    """The limits of one schema."""

    length: int = 1_000_000  # characters
    depth: int = 100  # types inside types
    fields: int = 10_000  # of all its records together

    def check(self, text: str) -> None:
        """Raise ServiceError 42209 if a schema is too large; text that is not JSON passes."""
        if len(text) > self.length:
            raise refusals.schema_too_large(len(text), self.length)
        if self._is_small(text):
            return
        try:
            value = decode(text)
        except SchemaError:
            return
        if _json_depth(value) > _JSON_LEVELS * self.depth + _JSON_REST:
            raise _too_large("its JSON is nested too deeply")
        fields = 0
        for node, depth in _types(value):
            if depth > self.depth:
                raise _too_large(f"types are nested more than {self.depth} deep")
            if not isinstance(node, dict):
                continue
            listed = node.get("fields")
            fields += len(listed) if isinstance(listed, list) else 0
            if fields > self.fields:
                raise _too_large(f"it has more than {self.fields} fields")
            for name in _names(node):
                if len(name) > _MAX_NAME_CHARACTERS:
                    raise _too_large(f"the name {name[:40]}... has more than 1000 characters")

    def _is_small(self, text: str) -> bool:
        """Return whether a text is within the limits for want of brackets, commas, and letters.

        A type inside a type has a bracket around it, and a field has a comma or is the first of a
        list. A name without escapes stands between two quotation marks, and one that is too long
        would fill a whole half of its maximum, wherever the text is cut.
        """
        lists = text.count("[")
        return (
            lists + text.count("{") <= self.depth
            and lists + text.count(",") <= self.fields
            and "\\" not in text
            and all(
                text.find('"', start, start + _HALF_NAME) >= 0
                for start in range(0, len(text) - _HALF_NAME, _HALF_NAME)
            )
        )


def _json_depth(value: Any) -> int:
    deepest, level = 0, [value]
    while level:
        deepest += 1
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return deepest


def _types(value: Any) -> Iterator[tuple[Any, int]]:
    """Yield every type and every field of a schema, with the number of enclosing types."""
    waiting = [(value, 0)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        if isinstance(node, list):
            waiting += [(branch, depth + 1) for branch in node]
        elif isinstance(node, dict):
            waiting += [(node[key], depth + 1) for key in ("items", "values") if key in node]
            listed = node.get("fields")
            for field in listed if isinstance(listed, list) else ():
                if isinstance(field, dict):
                    yield {**field, "fields": None}, depth
                    waiting.append((field.get("type"), depth + 1))


def _names(node: dict[str, Any]) -> Iterator[str]:
    for key in ("name", "namespace", "aliases", "symbols"):
        found = node.get(key)
        for one in found if isinstance(found, list) else [found]:
            if isinstance(one, str):
                yield one


def _too_large(why: str) -> ServiceError:
    return ServiceError(422, 42209, f"Schema is too large: {why}")
