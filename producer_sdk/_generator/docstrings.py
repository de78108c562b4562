"""The docs of a schema as docstrings of the generated classes.

Rule: whatever a doc holds, the module stays valid Python, and its lines are no longer than others
if single words fit.
"""

from __future__ import annotations

import textwrap
import unicodedata

from producer_sdk._generator.encoders import WIDTH


def docstring(text: str, depth: int) -> list[str]:
    """Return the lines of a docstring: escaped and wrapped, on one line if it fits."""
    pad = "    " * depth
    safe = _escaped(text)
    if len(pad) + len(safe) + 6 <= WIDTH and "\n" not in safe:
        return [f'{pad}"""{safe}"""']
    lines: list[str] = []
    for line in safe.split("\n"):
        lines += textwrap.wrap(
            line, WIDTH - len(pad) - 3, break_long_words=False, break_on_hyphens=False
        ) or [""]
    first, *rest = lines
    return [f'{pad}"""{first}', *(f"{pad}{line}".rstrip() for line in rest), f'{pad}"""']


def _escaped(text: str) -> str:
    """Return a doc escaped for triple quotes."""
    lines = [line.strip() for line in text.strip().replace("\\", "\\\\").split("\n")]
    plain = "\n".join(lines).replace('"', '\\"') if '"""' in text else "\n".join(lines)
    if plain.endswith('"') and not plain.endswith('\\"'):
        plain = plain[:-1] + '\\"'
    return "".join(
        c if c == "\n" or (c.isprintable() and unicodedata.category(c) != "Cf") else _code(c)
        for c in plain
    )


def _code(character: str) -> str:
    return character.encode("unicode_escape").decode()
