"""A check of compatibility that takes milliseconds and needs no store.

It runs on the event loop, where a comparison of any two schemas could stop all other requests.

Rules: the answer is that of `Registrar.check`, or None. It is None if memory does not have what is
compared, or if the comparison may take long: both texts are short, and the steps are few.
"""

from __future__ import annotations

from typing import Final

from headworks._registry.operations.compatibility_check import (
    CompatibilityResult,
    check_compatibility,
)
from headworks._registry.operations.current_subjects import CurrentSubject
from headworks._registry.operations.parsed_schemas import SchemaCache
from headworks._registry.operations.proposals import CandidateBuilder, ProposedSchema, annotated
from headworks._registry.operations.reader import LATEST
from headworks._registry.operations.version_search import compares_latest_alone
from headworks.errors import UsageError

MAX_CHARACTERS: Final = 8_000  # of a schema
_MAX_STEPS = 2_000  # of the comparison


def is_short(
    current: CurrentSubject, text: str, number: int | str | None, cache: SchemaCache
) -> bool:
    """Return whether memory has what is compared, and both texts are short."""
    latest, config = current.latest, current.resolved.config
    if latest is None or max(len(text), len(latest.schema.definition.text)) > MAX_CHARACTERS:
        return False
    compares_it = compares_latest_alone(latest, config) if number is None else number == LATEST
    return compares_it and cache.cached(latest.schema) is not None


def check_short(
    current: CurrentSubject,
    text: str,
    number: int | str | None,
    cache: SchemaCache,
    candidates: CandidateBuilder,
) -> CompatibilityResult | None:
    """Compare a text without references with the latest version; ServiceError if it is invalid."""
    latest, config = current.latest, current.resolved.config
    stored = None if latest is None else cache.cached(latest.schema)
    if latest is None or stored is None or not is_short(current, text, number, cache):
        return None
    proposal = ProposedSchema(text)
    metadata = annotated(proposal, latest.schema, config)[0]
    schema = candidates.parse_alone(proposal, config).schema
    try:
        return check_compatibility(
            schema, metadata, [latest], config, lambda _: stored, most_steps=_MAX_STEPS
        )
    except UsageError:  # it takes more steps
        return None
