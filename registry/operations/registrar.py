"""Registering, looking up and checking schemas.

Rules:

- The same content (text, references, metadata, rule set) has one id in a context, in whichever
  subjects it is registered; only an import may give it another one.
- A version's number is one more than the highest the subject has, soft-deleted versions counted.
- What is registered already is found by a read; only something new takes the writers' lock, and
  then everything is decided again under it.
- A dry run and a check decide with the same functions as a registration.
- Only a few schemas are compared at the same time: comparing is work for the processor
  alone, and many threads at it would only keep the reads by id waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import BoundedSemaphore

from sqlalchemy import Connection

from headworks._registry.model import metadata_and_rules, refusals
from headworks._registry.model.config import Config
from headworks._registry.model.definition import Definition
from headworks._registry.model.mode import Mode, must_accept_registration
from headworks._registry.model.names import valid_subject
from headworks._registry.model.schema_limits import SchemaLimits
from headworks._registry.operations.compatibility_check import (
    CompatibilityResult,
    check_compatibility,
)
from headworks._registry.operations.parsed_schemas import SchemaCache
from headworks._registry.operations.proposals import (
    Candidate,
    CandidateBuilder,
    ProposedSchema,
    annotated,
    is_equivalent,
    is_same_schema,
)
from headworks._registry.operations.reader import LATEST
from headworks._registry.operations.response_bodies import (
    DEFAULT_FORMAT,
    Entity,
    ResponseFormat,
    version_entity,
)
from headworks._registry.operations.scopes import (
    config_of,
    in_other_contexts,
    mode_of,
    real_subject,
)
from headworks._registry.store import RegistryStore, schemas
from headworks._registry.store.changes import AuditEntry, add_audit_entry
from headworks._registry.store.schemas import StoredSchema, StoredVersion
from headworks._subject import Subject

__all__ = ["ProposedSchema", "Registrar"]

_MAX_ID = 2**31 - 1
_MAX_CONCURRENT_CHECKS = 2


@dataclass(frozen=True, slots=True)
class _RegistrationPlan:
    """What registering a proposal would do: nothing (`existing`), or add `number`.

    `replaced` is a soft-deleted version whose place an import takes.
    """

    definition: Definition
    number: int
    id: int | None
    existing: StoredVersion | None = None
    replaced: StoredVersion | None = None


class Registrar:
    """Registers, looks up and checks schemas; it takes those within `limits`."""

    def __init__(
        self, database: RegistryStore, schema_cache: SchemaCache, limits: SchemaLimits
    ) -> None:
        self._database = database
        self._schema_cache = schema_cache
        self._candidates = CandidateBuilder(schema_cache, limits)
        self._checking = BoundedSemaphore(_MAX_CONCURRENT_CHECKS)

    def register(
        self,
        name: str,
        proposal: ProposedSchema,
        *,
        who: str,
        normalize: bool = False,
        response_format: ResponseFormat = DEFAULT_FORMAT,
        dry_run: bool = False,
    ) -> Entity:
        """Make the proposal a version of a subject, or find it there; return that version.

        A dry run decides all the same and changes nothing; its answer has no id if it is new.
        """
        subject = valid_subject(name)
        with self._database.read() as connection:
            actual = real_subject(connection, subject)
            known = self._known(connection, actual, proposal, normalize)
            if known is not None:
                return version_entity(connection, self._schema_cache, known, response_format)
            if dry_run:
                return self._forecast(connection, actual, proposal, normalize, response_format)
        with self._database.write() as connection:
            version = self._add(connection, actual, proposal, normalize, who)
            return version_entity(connection, self._schema_cache, version, response_format)

    def look_up(
        self,
        name: str,
        proposal: ProposedSchema,
        *,
        normalize: bool = False,
        response_format: ResponseFormat = DEFAULT_FORMAT,
        deleted: bool = False,
    ) -> Entity:
        """The version of a subject that has the proposal's content.

        A subject that names no context and is not in the default one is looked for in the others.
        """
        with self._database.read() as connection:
            subject = real_subject(connection, Subject.parse(name))
            is_known = False
            for place in (subject, *in_other_contexts(connection, name, subject)):
                versions = _visible(schemas.versions_of(connection, place), deleted=deleted)
                is_known = is_known or bool(versions)
                if versions:
                    found = self._matching(connection, place, proposal, versions, normalize)
                    if found is not None:
                        return version_entity(
                            connection, self._schema_cache, found, response_format
                        )
            raise refusals.no_schema() if is_known else refusals.no_subject(subject)

    def check(
        self,
        name: str,
        proposal: ProposedSchema,
        number: int | str | None,
        *,
        normalize: bool = False,
    ) -> CompatibilityResult:
        """Compare the proposal with one version ("latest" or a number), or as the level asks."""
        with self._database.read() as connection:
            subject = real_subject(connection, Subject.parse(name))
            config = config_of(connection, subject)
            latest = schemas.latest_version(connection, subject)
            if number is None:
                compared = _history(connection, subject, latest, config)
            else:
                compared = _chosen(connection, subject, latest, number)
            self._look_at(connection, latest)
            metadata = annotated(proposal, latest.schema if latest else None, config)[0]
            parsed = self._candidates.parse(
                connection, subject, proposal, config, normalize=normalize
            )
            with self._checking:
                return check_compatibility(
                    connection, self._schema_cache, parsed.schema, metadata, compared, config
                )

    def _known(
        self, connection: Connection, subject: Subject, proposal: ProposedSchema, normalize: bool
    ) -> StoredVersion | None:
        """The live version that the proposal means, if it is found without reading all of them."""
        mode = mode_of(connection, subject)
        must_accept_registration(mode, subject, with_id=proposal.id is not None)
        if proposal.version is not None:
            return None
        latest = schemas.latest_version(connection, subject)
        draft = self._candidates.draft(
            connection,
            subject,
            proposal,
            latest,
            config_of(connection, subject),
            0,
            normalize=normalize,
            importing=mode is Mode.IMPORT,
        )
        exact = _registered(connection, subject, draft.definition, proposal.id)
        if exact is not None or latest is None or proposal.id not in (None, latest.schema.id):
            return exact
        same = is_equivalent(connection, self._schema_cache, latest.schema, draft.definition)
        return latest if same else None

    def _forecast(
        self,
        connection: Connection,
        subject: Subject,
        proposal: ProposedSchema,
        normalize: bool,
        response_format: ResponseFormat,
    ) -> Entity:
        decision = self._decide(connection, subject, proposal, normalize)
        if decision.existing is not None:
            return version_entity(
                connection, self._schema_cache, decision.existing, response_format
            )
        now = self._database.clock()
        stored = StoredSchema(subject.context, decision.id or 0, decision.definition, now)
        version = StoredVersion(subject, decision.number, stored, False, now)
        # Nothing is stored under this id yet, so the text cannot be shown in another form.
        entity = version_entity(connection, self._schema_cache, version, DEFAULT_FORMAT)
        if decision.id is None:
            del entity["id"]
        return entity

    def _add(
        self,
        connection: Connection,
        subject: Subject,
        proposal: ProposedSchema,
        normalize: bool,
        who: str,
    ) -> StoredVersion:
        decision = self._decide(connection, subject, proposal, normalize)
        if decision.existing is not None:
            return decision.existing
        now, chosen = self._database.clock(), decision.id
        if chosen is None or schemas.schema_by_id(connection, subject.context, chosen) is None:
            if chosen is None and schemas.last_id(connection, subject.context) >= _MAX_ID:
                raise refusals.not_permitted(
                    f"Context {subject.context} has given out its last id, {_MAX_ID}"
                )
            chosen = schemas.add_schema(
                connection, subject.context, decision.definition, now, schema_id=chosen
            )
        if decision.replaced is not None:
            schemas.drop_versions(connection, subject, [decision.number])
        schemas.add_version(connection, subject, decision.number, chosen, now)
        change = AuditEntry("register", str(subject), decision.number, chosen)
        add_audit_entry(connection, change, who=who, at_ms=now)
        return schemas.versions_of(connection, subject, number=decision.number)[0]

    def _decide(
        self, connection: Connection, subject: Subject, proposal: ProposedSchema, normalize: bool
    ) -> _RegistrationPlan:
        """All of a registration but its effects; raises what refuses it."""
        mode = mode_of(connection, subject)
        must_accept_registration(mode, subject, with_id=proposal.id is not None)
        latest = schemas.latest_version(connection, subject)
        config = config_of(connection, subject)
        following = schemas.highest_number(connection, subject) + 1
        self._look_at(connection, latest)
        draft = self._candidates.draft(
            connection,
            subject,
            proposal,
            latest,
            config,
            max(proposal.version or 0, 0) or following,
            normalize=normalize,
            importing=mode is Mode.IMPORT,
        )
        existing = self._existing(connection, subject, proposal, draft)
        if existing is not None:
            return _RegistrationPlan(
                draft.definition, existing.number, existing.schema.id, existing
            )
        if mode is Mode.IMPORT:
            return _import(connection, subject, proposal, draft.definition, following)
        if (proposal.version or 0) > 0 and proposal.version != following:
            raise refusals.invalid_schema(
                f"Invalid schema: Version is not one more than previous version: "
                f"{proposal.version} is asked for, and the next one is {following}"
            )
        metadata = draft.definition.metadata
        history = _history(connection, subject, latest, config)
        with self._checking:
            verdict = check_compatibility(
                connection, self._schema_cache, draft.schema, metadata, history, config
            )
        if not verdict.is_compatible:
            raise refusals.incompatible(subject, verdict.messages, verdict.findings)
        ids = schemas.find_ids(connection, subject.context, draft.definition)
        return _RegistrationPlan(draft.definition, following, ids[0] if ids else None)

    def _look_at(self, connection: Connection, latest: StoredVersion | None) -> None:
        """Have the newest version parsed: what is proposed next takes the fields that it keeps."""
        if latest is not None:
            self._schema_cache.load(connection, latest.schema)

    def _existing(
        self,
        connection: Connection,
        subject: Subject,
        proposal: ProposedSchema,
        draft: Candidate,
    ) -> StoredVersion | None:
        """The live version that the proposal means, if there is one.

        Who names a version means no other; who asks for a number of its own always gets a new one.
        """
        if proposal.version is None:
            exact = _registered(connection, subject, draft.definition, proposal.id)
            alike = schemas.versions_alike(connection, subject, draft.definition.text)
            return exact or next(
                (
                    one
                    for one in reversed(alike)
                    if proposal.id in (None, one.schema.id)
                    and is_equivalent(connection, self._schema_cache, one.schema, draft.definition)
                ),
                None,
            )
        digest = draft.definition.digest
        for one in schemas.versions_of(connection, subject, number=max(proposal.version, 0)):
            if not one.deleted and proposal.id in (None, one.schema.id):
                return one if one.schema.definition.digest == digest else None
        return None

    def _matching(
        self,
        connection: Connection,
        subject: Subject,
        proposal: ProposedSchema,
        versions: Sequence[StoredVersion],
        normalize: bool,
    ) -> StoredVersion | None:
        """The newest version with the content given; else with what a registration would fill in;
        else with the text given, metadata and rules counting only where the request has them."""
        config = config_of(connection, subject)
        parsed = self._candidates.parse(
            connection, subject, proposal, config, normalize=normalize, strict=False
        )
        given = Definition(
            parsed.text, parsed.references, proposal.metadata or None, proposal.rules or None
        )
        metadata, rules = annotated(proposal, versions[-1].schema, config)
        filled = replace(given, metadata=metadata, rule_set=rules)

        def is_of_text(stored: StoredSchema) -> bool:
            there = stored.definition
            number = metadata_and_rules.unnumbered
            return (
                (proposal.metadata is None or number(there.metadata) == number(given.metadata))
                and (proposal.rules is None or there.rule_set == given.rule_set)
                and is_same_schema(connection, self._schema_cache, stored, given)
            )

        ways: tuple[Callable[[StoredSchema], bool], ...] = (
            lambda stored: stored.definition == given,
            lambda stored: is_equivalent(connection, self._schema_cache, stored, filled),
            is_of_text,
        )
        for way in ways:
            for version in reversed(versions):
                if way(version.schema):
                    return version
        return None


def _registered(
    connection: Connection, subject: Subject, definition: Definition, wanted: int | None
) -> StoredVersion | None:
    """The latest live version of the subject with this content (and id, if one is wanted)."""
    found = [
        version
        for schema_id in schemas.find_ids(connection, subject.context, definition)
        if wanted in (None, schema_id)
        for version in schemas.versions_of_schema(connection, subject.context, schema_id)
        if version.subject == subject and not version.deleted
    ]
    return max(found, key=lambda version: version.number, default=None)


def _import(
    connection: Connection,
    subject: Subject,
    proposal: ProposedSchema,
    definition: Definition,
    following: int,
) -> _RegistrationPlan:
    """A registration with the caller's id (and version): nothing live is ever overwritten."""
    assert proposal.id is not None
    there = schemas.schema_by_id(connection, subject.context, proposal.id)
    if there is not None and there.definition.digest != definition.digest:
        raise refusals.not_permitted(
            f"Overwrite new schema with id {proposal.id} is not permitted."
        )
    wanted = max(proposal.version or 0, 0)
    other = _registered(connection, subject, definition, None)
    if other is not None and not wanted:
        raise refusals.id_does_not_match(proposal.id, other.schema.id)
    number = wanted or following
    there_already = schemas.versions_of(connection, subject, number=number)
    taken = there_already[0] if there_already else None
    if taken is not None and not taken.deleted:
        raise refusals.not_permitted(
            f"Subject {subject} has a version {number} already, with another schema or id"
        )
    if taken is not None and schemas.referrers(connection, subject, number, deleted=True):
        raise refusals.reference_exists(subject, number)
    return _RegistrationPlan(definition, number, proposal.id, replaced=taken)


def _visible(versions: Sequence[StoredVersion], *, deleted: bool) -> list[StoredVersion]:
    return [one for one in versions if deleted or not one.deleted]


def _history(
    connection: Connection, subject: Subject, latest: StoredVersion | None, config: Config
) -> list[StoredVersion]:
    """The live versions that a new one may have to be compared with, oldest first."""
    if latest is None:
        return []
    if config.group is None and not config.level.transitive:
        return [latest]
    return _visible(schemas.versions_of(connection, subject), deleted=False)


def _chosen(
    connection: Connection, subject: Subject, latest: StoredVersion | None, number: int | str
) -> list[StoredVersion]:
    if number == LATEST:
        return [] if latest is None else [latest]
    found = _visible(schemas.versions_of(connection, subject, number=int(number)), deleted=False)
    if not found:
        raise refusals.no_version(number)
    return found
