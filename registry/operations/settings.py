"""Settings and modes of a subject, a context, or the registry: read, change, and remove."""

from __future__ import annotations

from sqlalchemy import Connection

from headworks._registry.model import config, mode, refusals
from headworks._registry.model.definition import JsonObject
from headworks._registry.model.mode import Mode
from headworks._registry.model.names import valid_subject
from headworks._registry.operations.scopes import GLOBAL, config_of, mode_of
from headworks._registry.store import RegistryStore, schemas
from headworks._registry.store import settings as rows
from headworks._registry.store.changes import AuditEntry, add_audit_entry
from headworks._registry.store.version_records import counts_under
from headworks._subject import ANY_CONTEXT, DEFAULT_CONTEXT, GLOBAL_CONTEXT, Subject

_EVERYTHING = Subject(DEFAULT_CONTEXT, "")


class SubjectSettings:
    """Reads and changes settings and modes; the name None stands for the whole registry."""

    def __init__(self, store: RegistryStore) -> None:
        self._store = store

    def config(self, name: str | None, *, in_force: bool = False) -> JsonObject:
        """Return the settings made for a subject, or with `in_force` those that apply to it."""
        with self._store.read() as connection:
            if name is None:
                return config_of(connection, _EVERYTHING).content
            subject = Subject.parse(name)
            if in_force:
                return config_of(connection, subject).content
            own = rows.read_config(connection, _scope(name))
            if own is None:
                raise refusals.compatibility_not_configured(subject)
            return own

    def validates_rules(self, name: str) -> bool:
        """Return whether the rule sets of new schemas in this subject are validated."""
        with self._store.read() as connection:
            found = config_of(connection, Subject.parse(name))
            return found.flag("validateRules", default=True)

    def change_config(self, name: str | None, body: JsonObject, *, who: str) -> JsonObject:
        """Change the fields that `body` names; return the settings as `config` does."""
        changes = config.read_update(body)
        scope = _scope(name)
        with self._store.write() as connection:
            if name is not None:
                _must_be_nameable(name)
            _must_be_writable(connection, name)
            before = rows.read_config(connection, scope)
            after = config.updated(before, changes)
            rows.write_config(connection, scope, after)
            self._note(connection, AuditEntry("config", scope, detail=changes), who)
        return config.in_force(GLOBAL, after).content if name is None else after

    def drop_config(self, name: str | None, *, who: str) -> JsonObject:
        """Remove the settings made for a subject; return them."""
        scope = _scope(name)
        with self._store.write() as connection:
            _must_be_writable(connection, name)
            before = rows.read_config(connection, scope)
            if before is None and name is not None:
                raise refusals.no_subject(Subject.parse(name))
            rows.drop_config(connection, scope)
            self._note(connection, AuditEntry("delete config", scope, detail=before or {}), who)
        return config.in_force(GLOBAL, before).content if name is None else before or {}

    def mode(self, name: str | None, *, in_force: bool = False) -> str:
        """Return the mode set for a subject, or with `in_force` the one that applies to it."""
        with self._store.read() as connection:
            if name is None:
                return mode_of(connection, _EVERYTHING).value
            subject = Subject.parse(name)
            if in_force:
                return mode_of(connection, subject).value
            own = rows.read_mode(connection, _scope(name))
            if own is None:
                raise refusals.mode_not_configured(subject)
            return own

    def change_mode(self, name: str | None, wanted: object, *, force: bool, who: str) -> str:
        """Set the mode; IMPORT needs an empty scope unless forced."""
        chosen = mode.read_mode(wanted, everywhere=name is None)
        scope = _scope(name)
        with self._store.write() as connection:
            if name is not None:
                _must_be_nameable(name)
            if chosen is Mode.IMPORT and not force and _has_versions(connection, name):
                raise refusals.not_permitted(
                    "Cannot import since found existing subjects: delete them, or use force=true"
                )
            rows.write_mode(connection, scope, chosen.value)
            self._note(connection, AuditEntry("mode", scope, detail={"mode": chosen.value}), who)
        return chosen.value

    def drop_mode(self, name: str | None, *, recursive: bool, who: str) -> str:
        """Remove the mode of a subject (`recursive`: of a context and its subjects)."""
        scope = _scope(name)
        with self._store.write() as connection:
            before = rows.read_mode(connection, scope)
            subject = Subject.parse(name or "")
            inside = [
                other
                for other in rows.scopes_of_modes(connection)
                if recursive
                and not subject.name
                and other != GLOBAL
                and Subject.parse(other).context == subject.context
            ]
            if before is None and not inside and name is not None:
                raise refusals.no_subject(subject)
            for gone in {scope, *inside}:
                rows.drop_mode(connection, gone)
            self._note(connection, AuditEntry("delete mode", scope, detail={"mode": before}), who)
        return before or Mode.READWRITE.value

    def _note(self, connection: Connection, change: AuditEntry, who: str) -> None:
        add_audit_entry(connection, change, who=who, at_ms=self._store.clock())


def _scope(name: str | None) -> str:
    return GLOBAL if name is None else str(Subject.parse(name))


def _must_be_nameable(name: str) -> None:
    """Raise ServiceError unless the name is a subject's or a whole context's."""
    subject = Subject.parse(name)
    whole = not subject.name and subject.context not in (DEFAULT_CONTEXT, ANY_CONTEXT)
    if not whole:
        valid_subject(name)


def _must_be_writable(connection: Connection, name: str | None) -> None:
    subject = Subject.parse(name or "")
    mode.must_accept_deletion(mode_of(connection, subject), subject)


def _has_versions(connection: Connection, name: str | None) -> bool:
    if name is None or Subject.parse(name) == Subject(GLOBAL_CONTEXT, ""):
        return any(one.live for one in counts_under(connection, None, ""))
    subject = Subject.parse(name)
    if subject.name:
        return schemas.latest_version(connection, subject) is not None
    return any(one.live for one in counts_under(connection, subject.context, ""))
