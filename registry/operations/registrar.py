"""Registering, looking up, and checking schemas.

Rules:

- The same content (text, references, metadata, rule set) has one id in a context, in whichever
  subjects it is registered. Only an import may give it a second id.
- The number of a new version is one more than the highest of the subject. Soft-deleted versions
  count.
- A read finds content that is already registered. Only new content takes the writers' lock, and
  everything is then decided again under it.
- A dry run and a check decide with the same functions as a registration.
- A comparison may take long. Nothing here bounds how many run at a time: `worker_pools` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection

from headworks._registry.model import refusals
from headworks._registry.model.definition import Definition
from headworks._registry.model.mode import Mode, must_accept_registration
from headworks._registry.model.names import valid_subject
from headworks._registry.model.schema_limits import SchemaLimits
from headworks._registry.operations.compatibility_check import (
    CompatibilityResult,
    check_compatibility,
)
from headworks._registry.operations.current_subjects import CurrentSubject, CurrentSubjects
from headworks._registry.operations.parsed_schemas import SchemaCache
from headworks._registry.operations.proposals import CandidateBuilder, ProposedSchema, annotated
from headworks._registry.operations.response_bodies import (
    DEFAULT_FORMAT,
    Entity,
    ResponseFormat,
    version_entity,
)
from headworks._registry.operations.scopes import (
    config_of,
    in_other_contexts,
    real_subject,
    resolve,
)
from headworks._registry.operations.short_check import check_short, is_short
from headworks._registry.operations.version_search import (
    compared_version,
    compared_versions,
    find_equivalent,
    find_exact,
    find_unchanged,
    match_lookup,
    visible_versions,
)
from headworks._registry.store import RegistryStore, schema_writes, schemas
from headworks._registry.store.schemas import StoredSchema, StoredVersion
from headworks._subject import Subject

__all__ = ["ProposedSchema", "Registrar"]

_MAX_ID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _RegistrationPlan:
    """The effect of a registration: none if there is an `existing` version, or a new version."""

    subject: Subject
    definition: Definition
    number: int  # of the existing or new version
    id: int | None  # of the schema; None: the next id of the context
    last_id: int | None  # the highest of the context so far
    existing: StoredVersion | None = None
    replaced: StoredVersion | None = None  # a soft-deleted version that an import overwrites


class Registrar:
    """Registers, looks up, and checks schemas that are within `limits`."""

    def __init__(self, store: RegistryStore, cache: SchemaCache, limits: SchemaLimits) -> None:
        self._store = store
        self._cache = cache  # parsed schemas, shared with the reader
        self._candidates = CandidateBuilder(cache, limits)
        self._current = CurrentSubjects(store)
        store.on_change(cache.end_adding)

    def register(
        self,
        name: str,
        proposal: ProposedSchema,
        *,
        who: str,
        normalize: bool = False,
        response_format: ResponseFormat = DEFAULT_FORMAT,
    ) -> Entity:
        """Register a schema as a version of a subject, unless it is one; return that version."""
        found = self.find_registered(
            name, proposal, normalize=normalize, response_format=response_format
        )
        return found or self.add(
            name, proposal, who=who, normalize=normalize, response_format=response_format
        )

    def remembers(self, name: str) -> bool:
        """Return whether the subject was asked for lately, and had a version then."""
        return self._current.remembers(Subject.parse(name))

    def find_registered(
        self,
        name: str,
        proposal: ProposedSchema,
        *,
        normalize: bool = False,
        response_format: ResponseFormat = DEFAULT_FORMAT,
    ) -> Entity | None:
        """Return the version that a registration would repeat, as far as a short read can tell."""
        subject = valid_subject(name)
        with self._store.look() as connection:
            current = self._current.find(connection, subject)
            found = self._find_unchanged(connection, current, proposal, normalize)
            if found is None:
                return None
            return version_entity(connection, self._cache, found, response_format)

    def add(
        self,
        name: str,
        proposal: ProposedSchema,
        *,
        who: str,
        normalize: bool = False,
        response_format: ResponseFormat = DEFAULT_FORMAT,
    ) -> Entity:
        """Do what `register` does, for a schema that `find_registered` did not find."""
        subject = valid_subject(name)
        digest = self._candidates.likely_digest(proposal, normalize=normalize)
        with self._store.write() as connection:
            plan = self._plan(connection, subject, proposal, digest, normalize)
            version = self._add(connection, plan, who)
            return version_entity(connection, self._cache, version, response_format)

    def try_to_add(
        self,
        name: str,
        proposal: ProposedSchema,
        *,
        normalize: bool = False,
        response_format: ResponseFormat = DEFAULT_FORMAT,
    ) -> Entity:
        """Decide as `add` does, and change nothing. A new schema may have no id in the answer."""
        subject = valid_subject(name)
        with self._store.read() as connection:
            plan = self._plan(connection, subject, proposal, "", normalize)
            return self._dry_run(connection, plan, response_format)

    def look_up(
        self,
        name: str,
        proposal: ProposedSchema,
        *,
        normalize: bool = False,
        response_format: ResponseFormat = DEFAULT_FORMAT,
        deleted: bool = False,
    ) -> Entity:
        """Return the version of a subject that has the proposal's content.

        A subject without a context that is not in the default one is looked up in the others.
        """
        with self._store.read() as connection:
            subject = real_subject(connection, Subject.parse(name))
            exists = False
            for place in (subject, *in_other_contexts(connection, name, subject)):
                versions = visible_versions(schemas.versions_of(connection, place), deleted=deleted)
                if not versions:
                    continue
                exists = True
                if not proposal.text.strip():
                    continue  # no version has an empty schema
                config = config_of(connection, place)
                parsed = self._candidates.parse(
                    connection, place, proposal, config, normalize=normalize, strict=False
                )
                found = match_lookup(connection, self._cache, proposal, parsed, versions, config)
                if found is not None:
                    return version_entity(connection, self._cache, found, response_format)
            raise refusals.no_schema() if exists else refusals.no_subject(subject)

    def check(
        self,
        name: str,
        proposal: ProposedSchema,
        number: int | str | None,
        *,
        normalize: bool = False,
    ) -> CompatibilityResult:
        """Compare the proposal with one version ("latest" or a number), or as the level asks."""
        with self._store.read() as connection:
            current = self._current.find(connection, Subject.parse(name))
            subject, config = current.resolved.subject, current.resolved.config
            latest = current.latest
            if number is None:
                compared = compared_versions(connection, subject, latest, config)
            else:
                compared = compared_version(connection, subject, latest, number)
            self._share_fields_of(connection, latest)
            metadata = annotated(proposal, latest.schema if latest else None, config)[0]
            parsed = self._candidates.parse(
                connection, subject, proposal, config, normalize=normalize, printed=False
            )
            return check_compatibility(
                parsed.schema, metadata, compared, config, partial(self._cache.load, connection)
            )

    def may_check_from_memory(self, name: str, text: str, number: int | str | None) -> bool:
        """Return whether `check_from_memory` can tell, unless the store has changed."""
        current = self._current.at(Subject.parse(name), None)
        return current is not None and is_short(current, text, number, self._cache)

    def check_from_memory(
        self, name: str, text: str, number: int | str | None, revision: int
    ) -> CompatibilityResult | None:
        """Do what `check` does at a revision of the store, if memory can tell (`short_check`)."""
        current = self._current.at(Subject.parse(name), revision)
        if current is None:
            return None
        return check_short(current, text, number, self._cache, self._candidates)

    def _find_unchanged(
        self,
        connection: Connection,
        current: CurrentSubject,
        proposal: ProposedSchema,
        normalize: bool,
    ) -> StoredVersion | None:
        resolved, latest = current.resolved, current.latest
        subject, mode = resolved.subject, resolved.mode
        must_accept_registration(mode, subject, with_id=proposal.id is not None)
        if proposal.version is not None:
            return None
        if latest is None:  # no live version: only parse the text, before the writers' lock is held
            self._candidates.parse(
                connection,
                subject,
                proposal,
                resolved.config,
                normalize=normalize,
                strict=mode is not Mode.IMPORT,
            )
            return None
        self._share_fields_of(connection, latest)
        candidate = self._candidates.build(
            connection,
            subject,
            proposal,
            latest,
            resolved.config,
            0,
            normalize=normalize,
            importing=mode is Mode.IMPORT,
        )
        return find_unchanged(
            connection, self._cache, subject, candidate.definition, proposal.id, latest
        )

    def _dry_run(
        self, connection: Connection, plan: _RegistrationPlan, response_format: ResponseFormat
    ) -> Entity:
        subject = plan.subject
        if plan.existing is not None:
            return version_entity(connection, self._cache, plan.existing, response_format)
        now, definition = self._store.clock(), plan.definition
        stored = StoredSchema(subject.context, plan.id or 0, definition.guid, definition, now)
        version = StoredVersion(subject, plan.number, stored, False, now)
        # Nothing is stored under this id, so the text is available in its default format only.
        entity = version_entity(connection, self._cache, version, DEFAULT_FORMAT)
        if plan.id is None:
            del entity["id"]
        return entity

    def _add(self, connection: Connection, plan: _RegistrationPlan, who: str) -> StoredVersion:
        subject = plan.subject
        if plan.existing is not None:
            return plan.existing
        now, stored, is_new = self._store.clock(), None, False
        if plan.id is not None:
            stored = schemas.schema_by_id(connection, subject.context, plan.id)
        if stored is None:
            given = plan.id or _next_id(subject.context, plan.last_id)
            definition = plan.definition
            stored = StoredSchema(subject.context, given, definition.guid, definition, now)
            is_new = True
            self._cache.begin_adding(stored)
        if plan.replaced is not None:
            schema_writes.drop_versions(connection, subject, [plan.number])
        added = schema_writes.NewVersion(subject, plan.number, stored, who, now)
        if is_new:
            schema_writes.add_version_of_new_schema(connection, added, plan.last_id)
        else:
            schema_writes.add_version(connection, added)
        return StoredVersion(subject, plan.number, stored, False, now)

    def _plan(
        self,
        connection: Connection,
        name: Subject,
        proposal: ProposedSchema,
        digest: str,
        normalize: bool,
    ) -> _RegistrationPlan:
        """Decide on a registration without any effect; raises ServiceError if it is refused.

        `digest` is the one that the content is likely to have.
        """
        resolved, state = resolve(connection, name, digest)
        subject, config, mode = resolved.subject, resolved.config, resolved.mode
        must_accept_registration(mode, subject, with_id=proposal.id is not None)
        next_number, last_id = state.highest + 1, state.last_id
        latest = schemas.latest_version(connection, subject) if state.is_live else None
        self._share_fields_of(connection, latest)
        candidate = self._candidates.build(
            connection,
            subject,
            proposal,
            latest,
            config,
            max(proposal.version or 0, 0) or next_number,
            normalize=normalize,
            importing=mode is Mode.IMPORT,
        )
        definition = candidate.definition
        existing = None
        if latest is not None:
            existing = find_equivalent(connection, self._cache, subject, proposal, definition)
        if existing is not None:
            found = existing.number, existing.schema.id
            return _RegistrationPlan(subject, definition, *found, last_id, existing)
        if mode is Mode.IMPORT:
            return _plan_import(connection, subject, proposal, definition, next_number, last_id)
        if (proposal.version or 0) > 0 and proposal.version != next_number:
            raise refusals.invalid_schema(
                f"Invalid schema: Version is not one more than previous version: "
                f"{proposal.version} is asked for, and the next one is {next_number}"
            )
        history = compared_versions(connection, subject, latest, config)
        result = check_compatibility(
            candidate.schema,
            definition.metadata,
            history,
            config,
            partial(self._cache.load, connection),
        )
        if not result.is_compatible:
            raise refusals.incompatible(subject, result.messages, result.findings)
        known = definition.digest == digest
        ids = state.ids if known else schemas.find_ids(connection, subject.context, definition)
        return _RegistrationPlan(subject, definition, next_number, ids[0] if ids else None, last_id)

    def _share_fields_of(self, connection: Connection, latest: StoredVersion | None) -> None:
        """Parse the latest version first, so that the proposal shares its unchanged fields."""
        if latest is not None:
            self._cache.load(connection, latest.schema)


def _next_id(context: str, last_id: int | None) -> int:
    if last_id is not None and last_id >= _MAX_ID:
        raise refusals.not_permitted(f"Context {context} has given out its last id, {_MAX_ID}")
    return (last_id or 0) + 1


def _plan_import(
    connection: Connection,
    subject: Subject,
    proposal: ProposedSchema,
    definition: Definition,
    next_number: int,
    last_id: int | None,
) -> _RegistrationPlan:
    """Plan a registration with the caller's id, and version if given; live content stays."""
    assert proposal.id is not None
    there = schemas.schema_by_id(connection, subject.context, proposal.id)
    if there is not None and there.definition.digest != definition.digest:
        raise refusals.not_permitted(
            f"Overwrite new schema with id {proposal.id} is not permitted."
        )
    wanted = max(proposal.version or 0, 0)
    other = find_exact(connection, subject, definition, None)
    if other is not None and not wanted:
        raise refusals.id_does_not_match(proposal.id, other.schema.id)
    number = wanted or next_number
    there_already = schemas.versions_of(connection, subject, number=number)
    taken = there_already[0] if there_already else None
    if taken is not None and not taken.deleted:
        raise refusals.not_permitted(
            f"Subject {subject} has a version {number} already, with another schema or id"
        )
    if taken is not None and schemas.referrers(connection, subject, number, deleted=True):
        raise refusals.reference_exists(subject, number)
    return _RegistrationPlan(subject, definition, number, proposal.id, last_id, replaced=taken)
