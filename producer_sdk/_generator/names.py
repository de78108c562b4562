"""Avro names to Python names, the same every time.

Rules:

- The name on the wire never changes. The Python name changes as little as possible.
- A name that Python or the class reserves gets `_` at its end. Python folds look-alike letters, so
  names that it would confuse get further underscores, in schema order.
- A Python name that begins with `_` also ends with it. Other such names belong to generated code.
"""

from __future__ import annotations

import builtins
import keyword
import unicodedata
from collections.abc import Callable, Iterable
from enum import StrEnum

_BUILTINS = frozenset(dir(builtins))
_ENUM_RESERVED = frozenset(dir(StrEnum)) | {"mro", "name", "value"}


def class_name(full_name: str) -> str:
    """Return the class of a named type, within the module of its namespace."""
    name = _identifier(full_name.rpartition(".")[2])
    if name.startswith("__"):  # inside another class, Python would mangle it
        name = f"Class{name}"
    return f"{name}_" if name in _BUILTINS or name.startswith("_") else name


def field_names(names: Iterable[str], taken: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the attribute of each field of a record; `taken` are classes that its types use."""
    return _unique_names(names, lambda name: name in taken or name.startswith("_"))


def symbol_names(symbols: Iterable[str]) -> dict[str, str]:
    """Return the member of each symbol of an enum."""
    plain = {symbol: f"S{symbol}" if symbol.startswith("_") else symbol for symbol in symbols}
    mangled = _unique_names(plain.values(), lambda name: name in _ENUM_RESERVED)
    return {symbol: mangled[name] for symbol, name in plain.items()}


def module_name(namespace: str) -> str:
    """Return the module of a namespace: its parts joined by `_`."""
    if not namespace:
        return "default"
    name = _identifier(namespace.replace(".", "_"))
    return f"ns{name}" if name.startswith("_") else name


def _unique_names(names: Iterable[str], reserved: Callable[[str], bool]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    used: set[str] = set()
    for name in names:
        python = _identifier(name)
        if reserved(python):
            python = f"{python}_"
        # A class would mangle `__x`, and `__x__` is Python's own.
        if python.startswith("__"):
            python = f"field{python}"
        while python in used:
            python = f"{python}_"
        used.add(python)
        chosen[name] = python
    return chosen


def _identifier(name: str) -> str:
    """Return `name` as Python reads it."""
    folded = unicodedata.normalize("NFKC", name)
    text = "".join(c if f"a{c}".isidentifier() else "_" for c in folded)
    if not text[0].isidentifier():
        text = f"x{text}"
    return f"{text}_" if keyword.iskeyword(text) else text
