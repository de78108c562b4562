"""A list of versions of subjects in lines: its JSON, without the texts of the schemas.

Most of such a list is the texts, and most of the time for its JSON is spent on the quotes in them,
which are escaped one by one. In lines the texts are as they are, so a list takes either side a
fraction of that time.

Format, in UTF-8: the first line is a JSON array of objects. Each further line is the member
`schema` of one of them, in their order. If an object has that member, it has no line: its text has
line breaks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

CONTENT_TYPE: Final = "application/vnd.headworks.versions"


def encode(versions: Iterable[dict[str, Any]]) -> bytes:
    """Return versions in lines; takes the texts out of them."""
    objects, texts = [], []
    for one in versions:
        if "\n" not in one["schema"]:
            texts.append(one.pop("schema"))
        objects.append(one)
    head = json.dumps(objects, ensure_ascii=False, separators=(",", ":"))
    return "\n".join((head, *texts)).encode()


def decode(body: bytes) -> list[dict[str, Any]]:
    """Return the versions; ValueError if these are no such lines."""
    head, *texts = body.decode().split("\n")
    objects: list[dict[str, Any]] = json.loads(head)
    short = [one for one in objects if "schema" not in one]
    for one, text in zip(short, texts, strict=True):
        one["schema"] = text
    return objects
