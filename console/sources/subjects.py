"""The registry's subjects, each with a summary of its latest schema.

Rules: one request lists all subjects of all contexts. A schema is parsed once, because a version
never changes. A schema that does not parse is shown with its error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headworks._console.sources.field_paths import dotted_paths
from headworks.errors import HeadworksError
from headworks.registry_client import RegistryClient, SubjectVersion
from headworks.schema import (
    Record,
    governance_of,
    parse,
    subject_of,
    topic_of,
)
from headworks.schema._sensitive import sensitive_paths

_OF_ALL_CONTEXTS = ":*:"
_MAX_PATHS = 500  # of a schema that the search finds


@dataclass(frozen=True, slots=True)
class SubjectRow:
    """A subject and its latest version; `topic` is None unless the subject is for values."""

    subject: str
    topic: str | None
    version: int
    schema_id: int
    registered_ms: int | None
    type_name: str | None
    fields: int
    owner: str | None
    doc: str | None
    sensitive: bool
    problem: str | None = None
    paths: tuple[str, ...] = ()  # of its fields


@dataclass(frozen=True, slots=True)
class SubjectsSnapshot:
    """All live subjects by name, in order."""

    rows: Mapping[str, SubjectRow]

    def of_topic(self, topic: str) -> SubjectRow | None:
        """Return the subject of a topic's values."""
        return self.rows.get(subject_of(topic))


class SubjectReader:
    """Reads all subjects of a registry."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._known: Mapping[str, SubjectRow] = {}  # the rows of the last read

    def __call__(self) -> SubjectsSnapshot:
        """Read all subjects. Raises UnreachableError if no registry answers."""
        listed = self._client.list_versions(_OF_ALL_CONTEXTS, latest_only=True)
        rows = {one.subject: self._row(one) for one in sorted(listed, key=lambda one: one.subject)}
        self._known = rows
        return SubjectsSnapshot(rows)

    def _row(self, one: SubjectVersion) -> SubjectRow:
        known = self._known.get(one.subject)
        if known is not None and (known.schema_id, known.version) == (one.id, one.version):
            return known
        name, fields, owner, doc, sensitive, problem = None, 0, None, None, False, None
        paths: tuple[str, ...] = ()
        try:
            text = self._client.schema_text(one.id, one.subject) if one.references else one.text
            schema = parse(text, strict=False)
            sensitive = bool(sensitive_paths(schema))
            paths = dotted_paths(schema, _MAX_PATHS)
            if isinstance(schema, Record):
                name, fields, doc = schema.name, len(schema.fields), schema.doc
                owner = governance_of(schema).owner
        except HeadworksError as error:
            problem = error.message
        return SubjectRow(
            one.subject,
            topic_of(one.subject),
            one.version,
            one.id,
            one.registered_ms,
            name,
            fields,
            owner,
            doc,
            sensitive,
            problem,
            paths,
        )
