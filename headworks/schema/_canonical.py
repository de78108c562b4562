"""The printed forms of a schema: canonical text, normalized text, fingerprints.

- `canonical_text` is character for character the text that Avro Java 1.12.1 prints. It is compact,
  writes a namespace only where it changes, and defines each type once. It keeps what is not
  structure (doc, aliases, defaults, properties). The registry stores it, and two schemas are the
  same if their canonical texts are equal.
- `normalized_text` is the canonical text with sorted properties and aliases and full names, so that
  texts that differ only in such order are one.

Rules: printing never recurses (an explicit stack), so depth costs no Python stack. Numbers are
printed as Java prints a double, strings as Jackson escapes them.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from operator import is_
from typing import cast

from headworks.schema._model import (
    PRIMITIVES,
    Array,
    EnumType,
    Field,
    Fixed,
    Json,
    MapType,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
)

# Simple names that Java always writes in full, because they are also names of kinds of types.
_KINDS = frozenset(("record", "enum", "array", "map", "union", "fixed", *PRIMITIVES))
_ESCAPED = re.compile(r'[\x00-\x1f"\\]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f"}
_SHORT["\r"] = "\\r"


def canonical_text(schema: Schema) -> str:
    """Return the text that Avro Java 1.12.1's `Schema.toString()` prints."""
    return _Printer().text(schema)


def is_same(one: Schema, other: Schema) -> bool:
    """Return whether two schemas have one canonical text, without printing records that share."""
    if one is other:
        return True
    if isinstance(one, Record) and isinstance(other, Record):
        if len(one.fields) != len(other.fields):
            return False
        if all(map(is_, one.fields, other.fields)):
            return _head(one) == _head(other)
    return canonical_text(one) == canonical_text(other)


def _head(node: Record) -> tuple[object, ...]:
    """Return what the canonical text of a record has beside its fields."""
    return node.name, node.is_error, node.doc, node.aliases, list(node.props.items())


def normalized_text(schema: Schema) -> str:
    """Return the canonical text with sorted properties and aliases and full names."""
    return _Printer(in_full=True, ordered=True).text(schema)


def structure_text(schema: Schema) -> str:
    """Return the canonical text without docs and aliases, by which Java compares two types."""
    return _Printer(decoration=False).text(schema)


def fingerprint(schema: Schema) -> str:
    """Return the SHA-256 of the canonical text in UTF-8, in hexadecimal."""
    return hashlib.sha256(canonical_text(schema).encode("utf-8", "surrogatepass")).hexdigest()


# A part still to be printed: finished text, or a type with the namespace around it.
_Part = str | tuple[Schema, str]


@dataclass(slots=True)
class _Printer:
    """Prints one schema."""

    in_full: bool = False  # full names, no namespaces
    ordered: bool = False  # sorted properties and aliases
    decoration: bool = True  # docs and aliases
    seen: set[str] = field(default_factory=set)  # types that are printed already

    def text(self, schema: Schema) -> str:
        return self._joined([(schema, "")])

    def _joined(self, stack: list[_Part]) -> str:
        out: list[str] = []
        while stack:
            part = stack.pop()
            if isinstance(part, str):
                out.append(part)
            else:
                stack.extend(reversed(self._expand(*part)))
        return "".join(out)

    def _expand(self, node: Schema, space: str) -> list[_Part]:
        if isinstance(node, Primitive):
            if not node.props:
                return [f'"{node.kind}"']
            return [f'{{"type":"{node.kind}"{self._props(node)}}}']
        if isinstance(node, Union):
            parts: list[_Part] = ["["]
            for i, branch in enumerate(node.branches):
                parts += [",", (branch, space)] if i else [(branch, space)]
            return [*parts, "]"]
        if isinstance(node, Array):
            return ['{"type":"array","items":', (node.items, space), self._props(node) + "}"]
        if isinstance(node, MapType):
            return ['{"type":"map","values":', (node.values, space), self._props(node) + "}"]
        if node.name in self.seen:
            return [_quote(self._reference(node.name, space))]
        self.seen.add(node.name)
        return self._definition(node, space)

    def _definition(self, node: Named, around: str) -> list[_Part]:
        space, _, simple = node.name.rpartition(".")
        kind = "error" if isinstance(node, Record) and node.is_error else node.kind
        if self.in_full:
            head = f'{{"type":{_quote(kind)},"name":{_quote(node.name)}'
            if around and not space:
                head += ',"namespace":""'
        else:
            head = f'{{"type":{_quote(kind)},"name":{_quote(simple)}'
            if space != around:
                head += f',"namespace":{_quote(space)}'
        if node.doc is not None and self.decoration:
            head += f',"doc":{_quote(node.doc)}'
        parts: list[_Part] = [head]
        if isinstance(node, Fixed):
            parts.append(f',"size":{node.size}')
        elif isinstance(node, EnumType):
            parts.append(f',"symbols":[{",".join(map(_quote, node.symbols))}]')
            if node.default is not None:
                parts.append(f',"default":{_quote(node.default)}')
        else:
            parts += [',"fields":[', *self._fields(node.fields, space), "]"]
        aliases = [self._reference(alias, space) for alias in node.aliases]
        return [*parts, self._props(node), self._aliases(aliases), "}"]

    def _fields(self, fields: Iterable[Field], space: str) -> list[_Part]:
        """Return the fields with commas between them; shared ones in a row are one text."""
        plain = self.decoration and not self.ordered
        parts: list[_Part] = []
        texts: list[str] = []  # of the shared fields since the last other one
        for one in fields:
            if one.shared and plain:
                texts.append(one.printed or self._print_shared(one, space))
                continue
            if texts:
                parts += [",".join(texts), ","]
                texts = []
            parts += [*self._parts_of_field(one, space), ","]
        if texts:
            return [*parts, ",".join(texts)]
        return parts[:-1]

    def _print_shared(self, one: Field, space: str) -> str:
        """Return the text of a shared field. It has no named type that a namespace changes."""
        one.printed = self._joined(self._parts_of_field(one, space)[::-1])
        return one.printed

    def _parts_of_field(self, one: Field, space: str) -> list[_Part]:
        head = f'{{"name":{_quote(one.name)},"type":'
        rest = ""
        if one.doc is not None and self.decoration:
            rest += f',"doc":{_quote(one.doc)}'
        if one.has_default:
            rest += f',"default":{_json(cast(Json, one.default))}'
        if one.order not in (None, "ascending"):
            rest += f',"order":{_quote(str(one.order))}'
        rest += self._aliases(one.aliases) + self._props(one) + "}"
        if isinstance(one.type, Primitive) and not one.type.props:
            return [f'{head}"{one.type.kind}"{rest}']
        return [head, (one.type, space), rest]

    def _aliases(self, aliases: Collection[str]) -> str:
        if not aliases or not self.decoration:
            return ""
        unique = list(dict.fromkeys(aliases))
        ordered = sorted(unique) if self.ordered else unique
        return f',"aliases":[{",".join(map(_quote, ordered))}]'

    def _props(self, node: Primitive | Array | MapType | Named | Field) -> str:
        if not node.props:
            return ""
        items = sorted(node.props.items()) if self.ordered else node.props.items()
        return "".join(f",{_quote(key)}:{_json(value)}" for key, value in items)

    def _reference(self, name: str, around: str) -> str:
        space, _, simple = name.rpartition(".")
        if self.in_full or space != around or simple in _KINDS:
            return name
        return simple


def _quote(text: str) -> str:
    if text.isprintable() and '"' not in text and "\\" not in text:  # the usual case, quickly
        return f'"{text}"'
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    return _SHORT.get(char) or f"\\u{ord(char):04X}"


def _json(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _double(value)
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    return "{" + ",".join(f"{_quote(k)}:{_json(v)}" for k, v in value.items()) + "}"


def _double(value: float) -> str:
    """Print a double as Java: plain from 1e-3 to 1e7, else one digit, a point, and E."""
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else ('"Infinity"' if value > 0 else '"-Infinity"')
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits, point = whole + fraction, len(whole) + int(exponent or 0)
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    if -2 <= point <= 7:
        whole = digits[: max(point, 0)].ljust(point, "0") or "0"
        rest = "0" * -min(point, 0) + digits[max(point, 0) :]
        return f"{sign}{whole}.{rest or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
