"""Searches for the version of a subject that has the content of a request.

Four questions, from the narrowest to the widest:

- `find_exact`: a live version with the same digest;
- `find_unchanged`: the live version that a request repeats, as far as a read can tell without
  reading all versions: an exact one, or an equivalent latest one;
- `find_equivalent`: the live version that a request repeats, exact or equivalent;
- `match_lookup`: the version that a lookup means, which may leave metadata and rules open.

Equivalent content differs only in the number of its version, and in references that are written out
in the text (`proposals.is_equivalent`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from headworks._registry.model import metadata_and_rules, refusals
from headworks._registry.model.config import Config
from headworks._registry.model.definition import Definition
from headworks._registry.operations.parsed_schemas import ParsedSchema, SchemaCache
from headworks._registry.operations.proposals import (
    ProposedSchema,
    annotated,
    is_equivalent,
    is_same_schema,
)
from headworks._registry.operations.reader import LATEST
from headworks._registry.store import schemas
from headworks._registry.store.schemas import StoredSchema, StoredVersion
from headworks._subject import Subject


def find_exact(
    connection: Connection, subject: Subject, definition: Definition, schema_id: int | None
) -> StoredVersion | None:
    """Return the latest live version with this content, and with this id if one is given."""
    found = [
        version
        for one in schemas.find_ids(connection, subject.context, definition)
        if schema_id in (None, one)
        for version in schemas.versions_of_schema(connection, subject.context, one)
        if version.subject == subject and not version.deleted
    ]
    return max(found, key=lambda version: version.number, default=None)


def find_unchanged(
    connection: Connection,
    cache: SchemaCache,
    subject: Subject,
    definition: Definition,
    schema_id: int | None,
    latest: StoredVersion,
) -> StoredVersion | None:
    """Return the live version that a request repeats: an exact one, or an equivalent latest one."""
    if schema_id in (None, latest.schema.id) and latest.schema.definition == definition:
        return latest
    exact = find_exact(connection, subject, definition, schema_id)
    if exact is not None or schema_id not in (None, latest.schema.id):
        return exact
    return latest if is_equivalent(connection, cache, latest.schema, definition) else None


def find_equivalent(
    connection: Connection,
    cache: SchemaCache,
    subject: Subject,
    proposal: ProposedSchema,
    definition: Definition,
) -> StoredVersion | None:
    """Return the live version that a request repeats, exactly or equivalently, or None.

    A request for a version number matches that version only. With NUMBERED it always gets a new
    version.
    """
    if proposal.version is None:
        exact = find_exact(connection, subject, definition, proposal.id)
        alike = schemas.versions_with_text_or_references(connection, subject, definition.text)
        return exact or next(
            (
                one
                for one in reversed(alike)
                if proposal.id in (None, one.schema.id)
                and is_equivalent(connection, cache, one.schema, definition)
            ),
            None,
        )
    for one in schemas.versions_of(connection, subject, number=max(proposal.version, 0)):
        if not one.deleted and proposal.id in (None, one.schema.id):
            return one if one.schema.definition.digest == definition.digest else None
    return None


def match_lookup(
    connection: Connection,
    cache: SchemaCache,
    proposal: ProposedSchema,
    parsed: ParsedSchema,
    versions: Sequence[StoredVersion],
    config: Config,
) -> StoredVersion | None:
    """Return the newest version that a lookup means, or None.

    It has the content of the request as given. If there is none, it has the content that a
    registration would store. If there is none either, it has the text of the request, and its
    metadata and rules as far as the request has them.
    """
    given = replace(
        parsed.content, metadata=proposal.metadata or None, rule_set=proposal.rules or None
    )
    metadata, rules = annotated(proposal, versions[-1].schema, config)
    completed = replace(given, metadata=metadata, rule_set=rules)
    unnumbered = metadata_and_rules.unnumbered

    def has_text(stored: StoredSchema) -> bool:
        content = stored.definition
        return (
            (
                proposal.metadata is None
                or unnumbered(content.metadata) == unnumbered(given.metadata)
            )
            and (proposal.rules is None or content.rule_set == given.rule_set)
            and is_same_schema(connection, cache, stored, given)
        )

    tests: tuple[Callable[[StoredSchema], bool], ...] = (
        lambda stored: stored.definition == given,
        lambda stored: is_equivalent(connection, cache, stored, completed),
        has_text,
    )
    for matches in tests:
        for version in reversed(versions):
            if matches(version.schema):
                return version
    return None


def visible_versions(versions: Sequence[StoredVersion], *, deleted: bool) -> list[StoredVersion]:
    """Return the live versions; with `deleted`, the soft-deleted ones too."""
    return [one for one in versions if deleted or not one.deleted]


def compared_versions(
    connection: Connection, subject: Subject, latest: StoredVersion | None, config: Config
) -> list[StoredVersion]:
    """Return the live versions that a new one is compared with at the level, oldest first."""
    if latest is None:
        return []
    if compares_latest_alone(latest, config):
        return [latest]
    return visible_versions(schemas.versions_of(connection, subject), deleted=False)


def compares_latest_alone(latest: StoredVersion, config: Config) -> bool:
    """Return whether a new version is compared with no other one than the latest."""
    return latest.number == 1 or (config.group is None and not config.level.transitive)


def compared_version(
    connection: Connection, subject: Subject, latest: StoredVersion | None, number: int | str
) -> list[StoredVersion]:
    """Return the one live version that a check names; ServiceError if it does not exist."""
    if number == LATEST:
        return [] if latest is None else [latest]
    versions = schemas.versions_of(connection, subject, number=int(number))
    found = visible_versions(versions, deleted=False)
    if not found:
        raise refusals.no_version(number)
    return found
