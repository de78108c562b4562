"""A list of versions of subjects in lines: what its JSON holds, in columns and bare texts.

Most of such a list is the texts, and most of the time for its JSON is spent on the quotes in them,
which are escaped one by one. In lines the texts are as they are, and no member's name is repeated.
So a list takes either side a fraction of that time.

Format, in UTF-8: the first line is a JSON object. Each of its members in COLUMNS is an array of the
values of all versions. `more` is an object: by the position of a version, the members that it has
besides. Each further line is the member `schema` of a version, in their order. If it is among those
of `more`, the version has no line: its text has line breaks. All are schemas of Avro.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

CONTENT_TYPE: Final = "application/vnd.headworks.versions"
COLUMNS: Final = ("subject", "version", "id", "guid", "ts")
_ALWAYS: Final = frozenset((*COLUMNS, "schema", "schemaType"))


def encode(versions: Sequence[Mapping[str, Any]]) -> bytes:
    """Return versions in lines."""
    more: dict[int, dict[str, Any]] = {}
    texts = []
    for position, one in enumerate(versions):
        rest = {name: one[name] for name in one.keys() - _ALWAYS}
        if "\n" in one["schema"]:
            rest["schema"] = one["schema"]
        else:
            texts.append(one["schema"])
        if rest:
            more[position] = rest
    columns = {name: _json([one[name] for one in versions]) for name in COLUMNS}
    return compose(columns, (text.encode() for text in texts), more=_json(more))


def compose(columns: Mapping[str, str], texts: Iterable[bytes], *, more: str = "{}") -> bytes:
    """Return the lines of these parts: `columns` are JSON arrays by name, `more` is an object."""
    members = (f'"{name}":{value}' for name, value in (*columns.items(), ("more", more)))
    return b"\n".join((f"{{{','.join(members)}}}".encode(), *texts))


@dataclass(frozen=True, slots=True)
class VersionLines:
    """Versions as lines have them; all columns are as long as `texts`."""

    columns: tuple[list[Any], ...]  # as in COLUMNS
    texts: list[str]
    more: dict[int, dict[str, Any]]  # further members, by the position of their version

    def objects(self) -> list[dict[str, Any]]:
        """Return the versions as the objects of a JSON list."""
        found = [
            {
                "subject": subject,
                "version": version,
                "id": schema_id,
                "guid": guid,
                "schemaType": "AVRO",
                "schema": text,
                "ts": at_ms,
            }
            for subject, version, schema_id, guid, at_ms, text in zip(
                *self.columns, self.texts, strict=True
            )
        ]
        for position, members in self.more.items():
            found[position] |= members
        return found


def decode(body: bytes) -> VersionLines:
    """Return the versions; ValueError if these are no such lines."""
    first, *texts = body.decode().split("\n")
    head = json.loads(first)
    try:
        more = {int(position): dict(members) for position, members in head["more"].items()}
        for position in sorted(more):
            if "schema" in more[position]:
                texts.insert(position, more[position]["schema"])
        columns = tuple(head[name] for name in COLUMNS)
        lengths = {len(texts), *map(len, columns)}
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"these are no versions in lines: {error!r}") from None
    if len(lengths) > 1 or max(more, default=-1) >= len(texts):
        raise ValueError("these are no versions in lines: the columns differ in length")
    return VersionLines(columns, texts, more)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
