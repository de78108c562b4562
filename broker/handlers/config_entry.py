"""The description of one config that clients can set, as DescribeConfigs answers it.

Rule: the first of the values is in force. The others are its synonyms, in the order of precedence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headworks._broker.handlers.node import Request


def config_entry(
    request: Request, name: str, values: Sequence[tuple[int, str, str]], kind: int, meaning: str
) -> dict[str, Any]:
    """Describe a config; each of `values` is its source, the name it has there, and the value."""
    source, _, value = values[0]
    return {
        "name": name,
        "value": value,
        "read_only": False,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": [
            {"name": known_as, "value": each, "source": where} for where, known_as, each in values
        ]
        if request.message.include_synonyms
        else [],
        "config_type": kind,
        "documentation": meaning
        if getattr(request.message, "include_documentation", False)
        else None,
    }
