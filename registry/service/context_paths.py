"""The URL prefix `/contexts/{context}`, which points a client at one context.

`schema.registry.url=http://host/contexts/.eu` sends every request under that prefix. The request is
rewritten into the one without the prefix, in which subjects have their context.

Rules:

- Routes, permissions, and logs see the rewritten request only.
- A name that has a context already keeps it.
- `/contexts` and `/contexts/{context}` themselves are routes, and stay as they are.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, unquote, urlencode

from headworks._registry.model import refusals
from headworks._subject import DEFAULT_CONTEXT, Subject

_PREFIX = "/contexts/"
_QUALIFIED = (":.", ":*")  # how a name with a context begins


def without_context_prefix(path: str, query: bytes) -> tuple[str, bytes]:
    """Return the path, still percent-encoded, and the query of the request without the prefix.

    Raises ServiceError 400 if the prefix names no context.
    """
    if not path.startswith(_PREFIX):
        return path, query
    encoded, slash, rest = path[len(_PREFIX) :].partition("/")
    if not slash:
        return path, query
    context = _prefix_of(encoded)
    return _qualified_path(rest, context), _qualified_query(rest, query, context)


def _prefix_of(encoded: str) -> str:
    """Return what is put before a name: ":.eu:", or "" for the default context."""
    context = unquote(encoded).removeprefix(":").removesuffix(":")
    if not context.startswith("."):
        context = f".{context}"
    if ":" in context or "\0" in context or "\N{REPLACEMENT CHARACTER}" in context:
        raise refusals.bad_request(f"{unquote(encoded)!r} in the path is not a context")
    return "" if context == DEFAULT_CONTEXT else str(Subject(context, ""))


def _qualified_path(rest: str, context: str) -> str:
    parts = rest.split("/")
    before = quote(context, safe="")
    if parts[0] in ("config", "mode"):
        if len(parts) == 1 and before:
            parts.append(before)
        elif len(parts) > 1:
            parts[1] = _qualified(parts[1], before)
    elif "subjects" in parts[:2]:  # also below /compatibility
        at = parts.index("subjects") + 1
        if at < len(parts):
            parts[at] = _qualified(parts[at], before)
    return "/" + "/".join(parts)


def _qualified_query(rest: str, query: bytes, context: str) -> bytes:
    if rest.startswith("schemas/ids/"):
        name = "subject"
    elif rest in ("subjects", "schemas"):
        name = "subjectPrefix"
    else:
        return query
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="surrogateescape")
    values = [value for key, value in pairs if key == name] or [""]
    others = [(key, value) for key, value in pairs if key != name]
    qualified = [
        (name, value if value.startswith(_QUALIFIED) else context + value) for value in values
    ]
    return urlencode([*others, *qualified], errors="surrogateescape").encode("ascii")


def _qualified(encoded: str, before: str) -> str:
    return encoded if unquote(encoded).startswith(_QUALIFIED) else before + encoded
