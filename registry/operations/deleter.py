"""Deleting and restoring.

Rules:

- A soft deletion hides versions. Their schemas stay readable by id, so data stays readable.
- A permanent deletion requires a soft one first, and is final. Ids are never assigned again.
- A version to which another schema refers cannot be deleted. A soft deletion counts live referrers
  only, and a permanent one counts soft-deleted referrers too.
- A permanent deletion of a subject also drops its settings and its mode.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from headworks._registry.model import refusals
from headworks._registry.model.mode import must_accept_deletion
from headworks._registry.operations.scopes import mode_of
from headworks._registry.store import RegistryStore, schema_writes, schemas, settings
from headworks._registry.store.changes import AuditEntry, add_audit_entry
from headworks._registry.store.schemas import StoredVersion
from headworks._subject import Subject


class Deleter:
    """Deletes subjects, versions, and contexts, and restores subjects."""

    def __init__(self, store: RegistryStore) -> None:
        self._store = store

    def delete_subject(self, name: str, *, permanent: bool, who: str) -> list[int]:
        """Delete every version of a subject; return their numbers."""
        subject = Subject.parse(name)
        with self._store.write() as connection:
            must_accept_deletion(mode_of(connection, subject), subject)
            every = schemas.versions_of(connection, subject)
            if not every:
                raise refusals.no_subject(subject)
            live = [one for one in every if not one.deleted]
            if permanent and live:
                raise refusals.subject_not_soft_deleted(subject)
            if not permanent and not live:
                raise refusals.subject_soft_deleted(subject)
            gone = every if permanent else live
            self._delete(connection, subject, gone, permanent=permanent, who=who)
            if permanent:
                settings.drop_config(connection, str(subject))
                settings.drop_mode(connection, str(subject))
            return [one.number for one in gone]

    def delete_version(self, name: str, number: int | str, *, permanent: bool, who: str) -> int:
        """Delete one version of a subject ("latest": the highest live one)."""
        subject = Subject.parse(name)
        with self._store.write() as connection:
            must_accept_deletion(mode_of(connection, subject), subject)
            every = schemas.versions_of(connection, subject)
            live = [one for one in every if not one.deleted]
            if not every or (number == "latest" and not live):
                raise refusals.no_subject(subject)
            if number == "latest":
                number = live[-1].number
            found = [one for one in every if one.number == number]
            if not found:
                raise refusals.no_version(number)
            if permanent and not found[0].deleted:
                raise refusals.version_not_soft_deleted(subject, found[0].number)
            if not permanent and found[0].deleted:
                raise refusals.version_soft_deleted(subject, found[0].number)
            self._delete(connection, subject, found, permanent=permanent, who=who)
            return found[0].number

    def undelete_subject(self, name: str, *, who: str) -> list[int]:
        """Restore every soft-deleted version of a subject; return their numbers."""
        subject = Subject.parse(name)
        with self._store.write() as connection:
            must_accept_deletion(mode_of(connection, subject), subject)
            every = schemas.versions_of(connection, subject)
            if not every:
                raise refusals.no_subject(subject)
            back = [one for one in every if one.deleted]
            numbers = [one.number for one in back]
            schema_writes.mark_deleted(connection, subject, numbers, deleted=False)
            for one in back:
                change = AuditEntry("undelete", str(subject), one.number, one.schema.id)
                self._note(connection, change, who)
            return numbers

    def delete_context(self, context: str, *, who: str) -> None:
        """Drop the settings and modes of a context that has no subjects."""
        with self._store.write() as connection:
            if context in schemas.context_names(connection):
                raise refusals.context_not_empty(context)
            scope = str(Subject(context, ""))
            settings.drop_config(connection, scope)
            settings.drop_mode(connection, scope)
            self._note(connection, AuditEntry("delete context", scope), who)

    def _delete(
        self,
        connection: Connection,
        subject: Subject,
        versions: Sequence[StoredVersion],
        *,
        permanent: bool,
        who: str,
    ) -> None:
        numbers = [one.number for one in versions]
        own = {one.schema.id for one in versions}
        for version in versions:
            using = schemas.referrers(connection, subject, version.number, deleted=permanent)
            if any(context != subject.context or used not in own for context, used in using):
                raise refusals.reference_exists(subject, version.number)
        if permanent:
            schema_writes.drop_versions(connection, subject, numbers)
        else:
            schema_writes.mark_deleted(connection, subject, numbers)
        action = "delete permanently" if permanent else "delete"
        for version in versions:
            self._note(
                connection, AuditEntry(action, str(subject), version.number, version.schema.id), who
            )

    def _note(self, connection: Connection, change: AuditEntry, who: str) -> None:
        add_audit_entry(connection, change, who=who, at_ms=self._store.clock())
