"""Reading: subjects, versions, schemas by id and by guid, contexts, and the audit log.

Rules:

- `deleted` always includes soft-deleted versions.
- Ids belong to a context. A subject as `hint` names the context of an id.
- If a subject names no context, and the default one does not have it, the other contexts are
  searched by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from headworks import _version_lines
from headworks._registry.model import refusals
from headworks._registry.model.definition import Definition, JsonObject
from headworks._registry.operations.parsed_schemas import SchemaCache
from headworks._registry.operations.response_bodies import (
    DEFAULT_FORMAT,
    Entity,
    ResponseFormat,
    listed_entity,
    schema_entity,
    version_entity,
)
from headworks._registry.operations.scopes import in_other_contexts, real_subject
from headworks._registry.operations.version_listing import (
    VersionFilter,
    VersionListing,
    VersionQuery,
)
from headworks._registry.store import RegistryStore, changes, schemas, version_records
from headworks._registry.store.schemas import StoredSchema, StoredVersion
from headworks._subject import ANY_CONTEXT, DEFAULT_CONTEXT, Subject
from headworks.schema._difference import differences

LATEST = "latest"


class RegistryReader:
    """Serves every request that changes nothing."""

    def __init__(self, store: RegistryStore, schema_cache: SchemaCache) -> None:
        self._store = store
        self._schema_cache = schema_cache
        self._listing = VersionListing(store)

    def subjects(self, prefix: str, version_filter: VersionFilter) -> list[str]:
        """Return the names of subjects that start with `prefix` (":*:" for every context)."""
        with self._store.read() as connection:
            subjects = self._listing.subjects(connection, prefix, version_filter)
            return [str(one) for one in subjects]

    def subjects_with_versions(self, names: Sequence[str], listed: VersionFilter) -> list[Entity]:
        """Return the version numbers of subjects, ascending, by subject."""
        with self._store.read() as connection:
            subjects = [Subject.parse(name) for name in names]
            found = self._listing.numbers(connection, subjects, listed)
            return [{"subject": str(one), "versions": [*found[one]]} for one in subjects]

    def every_subject(self) -> list[str]:
        """Return the names of all subjects of all contexts, soft-deleted ones too."""
        return self.subjects(f":{ANY_CONTEXT}:", VersionFilter(deleted=True))

    def context_of(self, name: str) -> str:
        """Return the context of a subject, or of the subject that it is an alias of."""
        with self._store.read() as connection:
            return real_subject(connection, Subject.parse(name)).context

    def versions(self, name: str, version_filter: VersionFilter) -> list[int]:
        """Return the version numbers of a subject, ascending."""
        with self._store.read() as connection:
            subject = real_subject(connection, Subject.parse(name))
            found = version_records.numbers_of(connection, subject, deleted=version_filter.state)
            if not found:
                raise refusals.no_subject(subject)
            return [-n if version_filter.negative and deleted else n for n, deleted in found]

    def version(
        self,
        name: str,
        number: int | str,
        *,
        deleted: bool = False,
        response_format: ResponseFormat = DEFAULT_FORMAT,
    ) -> Entity:
        """Return one version of a subject; LATEST is the highest live one."""
        with self._store.read() as connection:
            version = self._version(connection, name, number, deleted)
            return version_entity(connection, self._schema_cache, version, response_format)

    def definitions(self, name: str, number: int | str) -> tuple[Definition, Definition]:
        """Return the content of one version of a subject, and of its latest version.

        Other contexts are not searched: a change of tags must not take another context's content.
        """
        with self._store.read() as connection:
            subject = real_subject(connection, Subject.parse(name))
            qualified = f":{subject.context}:{subject.name}"
            version = self._version(connection, qualified, number, False)
            latest = self._version(connection, qualified, LATEST, False)
            return version.schema.definition, latest.schema.definition

    def latest_with(
        self,
        name: str,
        pairs: JsonObject,
        *,
        deleted: bool,
        response_format: ResponseFormat = DEFAULT_FORMAT,
    ) -> Entity:
        """Return the highest version of a subject whose metadata has all of these properties."""
        with self._store.read() as connection:
            subject = real_subject(connection, Subject.parse(name))
            versions = [
                one
                for one in schemas.versions_of(connection, subject)
                if deleted or not one.deleted
            ]
            if not versions:
                raise refusals.no_subject(subject)
            for version in reversed(versions):
                properties = (version.schema.definition.metadata or {}).get("properties") or {}
                if pairs.items() <= properties.items():
                    return version_entity(connection, self._schema_cache, version, response_format)
            raise refusals.no_schema()

    def difference(self, name: str, old: int | str, new: int | str) -> Entity:
        """Return the differences between two versions of a subject, field by field."""
        with self._store.read() as connection:
            before = self._version(connection, name, old, True)
            after = self._version(connection, name, new, True)
            found = differences(
                self._schema_cache.load(connection, before.schema),
                self._schema_cache.load(connection, after.schema),
            )
            return {
                "subject": str(after.subject),
                "from": before.number,
                "to": after.number,
                "differences": [one.as_dict() for one in found],
            }

    def referenced_by(self, name: str, number: int | str, *, deleted: bool) -> list[int]:
        """Return the ids of the schemas that refer to a version."""
        with self._store.read() as connection:
            version = self._version(connection, name, number, True)
            found = schemas.referrers(connection, version.subject, version.number, deleted=deleted)
            return [schema_id for _, schema_id in found]

    def every_version(
        self, query: VersionQuery, *, seen: Callable[[str], bool] | None
    ) -> list[Entity]:
        """Return the versions of the subjects under a prefix, by subject and number.

        Subjects for which `seen` returns false are left out; None: no subject is.
        """
        with self._store.read() as connection:
            return self._listed(connection, query, seen)

    def every_version_in_lines(
        self, query: VersionQuery, *, seen: Callable[[str], bool] | None
    ) -> bytes:
        """Return the same versions in lines (`_version_lines`)."""
        with self._store.read() as connection:
            if (lines := self._listing.lines(connection, query, seen)) is not None:
                return lines
            found = self._listed(connection, query, seen)
        return _version_lines.encode(found)

    def _listed(
        self, connection: Connection, query: VersionQuery, seen: Callable[[str], bool] | None
    ) -> list[Entity]:
        page = self._listing.page(connection, query, seen)
        return [listed_entity(one, aliases) for one, aliases in page]

    def schema(
        self,
        schema_id: int,
        *,
        hint: str = "",
        response_format: ResponseFormat = DEFAULT_FORMAT,
        with_max_id: bool = False,
    ) -> Entity:
        """Return a schema by id; with a subject as `hint`, also that subject's name and version."""
        with self._store.read() as connection:
            found, version = self._schema(connection, schema_id, hint)
            entity = schema_entity(connection, self._schema_cache, found, response_format)
            if version is not None:
                entity |= {"subject": str(version.subject), "version": version.number}
            if with_max_id:
                entity["maxId"] = schemas.last_id(connection, found.context) or 0
            return entity

    def uses(self, schema_id: int, *, hint: str, deleted: bool) -> list[tuple[str, int]]:
        """Return (subject, version) of every version that has the schema."""
        with self._store.read() as connection:
            found, _ = self._schema(connection, schema_id, hint)
            return [
                (str(version.subject), version.number)
                for version in schemas.versions_of_schema(connection, found.context, found.id)
                if deleted or not version.deleted
            ]

    def schema_by_guid(
        self, guid: str, *, response_format: ResponseFormat = DEFAULT_FORMAT
    ) -> Entity:
        """Return a schema by guid."""
        with self._store.read() as connection:
            context, schema_id = self._by_guid(connection, guid)[0]
            found = schemas.schema_by_id(connection, context, schema_id)
            assert found is not None
            return schema_entity(connection, self._schema_cache, found, response_format)

    def subjects_of_guid(self, guid: str) -> list[str]:
        """Return the subjects that have the schema with this guid, in any context."""
        with self._store.read() as connection:
            return [
                str(version.subject)
                for context, schema_id in self._by_guid(connection, guid)
                for version in schemas.versions_of_schema(connection, context, schema_id)
            ]

    def ids_of_guid(self, guid: str) -> list[Entity]:
        """Return the id of the schema with this guid in each context."""
        with self._store.read() as connection:
            found = self._by_guid(connection, guid)
            return [{"context": context, "id": schema_id} for context, schema_id in found]

    def contexts(self, prefix: str = "") -> list[str]:
        """Return the contexts, the default one first."""
        with self._store.read() as connection:
            found = schemas.context_names(connection)
        named = [name for name in found if name != DEFAULT_CONTEXT]
        return [name for name in [DEFAULT_CONTEXT, *named] if name.startswith(prefix)]

    def changes(self, *, subject: str | None, after: int, limit: int) -> list[Entity]:
        """Return the audit log after change number `after`, oldest first."""
        with self._store.read() as connection:
            return changes.changes(connection, subject=subject, after=after, limit=limit)

    def is_ready(self) -> bool:
        """Return whether the store answers; raises its error."""
        return self._store.revision() >= 0

    def _version(
        self, connection: Connection, name: str, number: int | str, deleted: bool
    ) -> StoredVersion:
        subject = real_subject(connection, Subject.parse(name))
        for place in (subject, *in_other_contexts(connection, name, subject)):
            found = _version_there(connection, place, number, deleted)
            if found is not None:
                return found
        others = schemas.versions_of(connection, subject)
        if any(deleted or not one.deleted for one in others):
            raise refusals.no_version(number)
        raise refusals.no_subject(subject)

    def _schema(
        self, connection: Connection, schema_id: int, hint: str
    ) -> tuple[StoredSchema, StoredVersion | None]:
        subject = Subject.parse(hint)
        contexts = [subject.context]
        if subject.context == DEFAULT_CONTEXT and not hint.startswith(":.:"):
            contexts += [c for c in schemas.context_names(connection) if c != DEFAULT_CONTEXT]
        found: StoredSchema | None = None
        for context in contexts:
            if not schemas.is_registered(connection, context, schema_id):
                continue
            found = found or schemas.schema_by_id(connection, context, schema_id)
            if not subject.name:
                break
            for version in reversed(schemas.versions_of_schema(connection, context, schema_id)):
                if version.subject.name == subject.name:
                    return version.schema, version
        if found is None:
            raise refusals.no_schema(f"Schema {schema_id}")
        return found, None

    @staticmethod
    def _by_guid(connection: Connection, guid: str) -> list[tuple[str, int]]:
        found = schemas.ids_of_guid(connection, guid.lower())
        if not found:
            raise refusals.no_schema(f"Schema {guid}")
        return found


def _version_there(
    connection: Connection, subject: Subject, number: int | str, deleted: bool
) -> StoredVersion | None:
    if number == LATEST:
        return schemas.latest_version(connection, subject)
    every = schemas.versions_of(connection, subject, number=int(number))
    return next((one for one in every if deleted or not one.deleted), None)
