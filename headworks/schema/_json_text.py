"""Schema text to JSON values: JSON with comments, as Avro Java's parser reads it.

Rules:

- A text that is not JSON is a SchemaError with the place. Deep nesting is one too.
- An integer of more digits than Python converts is refused, and not slowly converted.
- White space replaces a comment, so every position stays.
"""

from __future__ import annotations

import json
import re
import sys
from typing import cast

from headworks.errors import SchemaError
from headworks.schema._model import PRIMITIVES, Json

_MAX_DIGITS = 4300  # of an integer; Python converts no longer ones
# An unterminated string or comment extends to the end of the text: one pass is enough.
_COMMENT = re.compile(r'"(?:[^"\\]|\\.?)*(?:"|\Z)|/\*.*?(?:\*/|\Z)|//[^\n]*', re.DOTALL)


def decode(text: str) -> Json:
    """Decode schema text as JSON with comments; SchemaError if it is not."""
    if not text.strip():
        raise SchemaError("the schema is empty", rule="json")
    try:
        return _decode(text)
    except RecursionError:
        raise SchemaError("the schema is nested too deeply", rule="depth") from None
    except ValueError as error:
        bare = without_comments(text)
        if bare != text:
            return decode(bare)
        fix = f'write "{text}", in quotes' if text in PRIMITIVES else None
        raise SchemaError(f"the schema is not JSON: {error}", rule="json", fix=fix) from None


def _decode(text: str) -> Json:
    if sys.get_int_max_str_digits() == _MAX_DIGITS:
        try:
            return cast(Json, _FAST.decode(text))
        except ValueError:
            pass  # the other decoder has the better message
    return cast(Json, json.loads(text, parse_constant=_no_constant, parse_int=integer))


def integer(digits: str) -> int:
    """Return an integer of a JSON text; ValueError if it has more digits than Python converts."""
    if len(digits) > _MAX_DIGITS:
        raise ValueError(
            f"a number has {len(digits):,} digits, and at most {_MAX_DIGITS:,} are read"
        )
    return int(digits)


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not a JSON number")


# This decoder lets Python convert integers, which has the same limit unless somebody changed it.
_FAST = json.JSONDecoder(parse_constant=_no_constant)


def json_or_text(text: str) -> object:
    """Return a schema's JSON, or the text: other registries have schemas in other languages."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def indented(text: str) -> str:
    """Return a schema's text, indented, or unchanged if it is not JSON."""
    found = json_or_text(text)
    return text if found is text else json.dumps(found, indent=2, ensure_ascii=False)


def without_comments(text: str) -> str:
    """Return the text with comments replaced by white space: every position stays."""
    return _COMMENT.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    """Return a comment as white space of the same size; a string stays."""
    text = match.group()
    return text if text[0] == '"' else re.sub(r"[^\n]", " ", text)
