"""Registering, looking up and checking schemas.

Rules:

- The same content (text, references, metadata, rule set) has one id in a context, in whichever
  subjects it is registered.
- A version's number is one more than the highest the subject has, soft-deleted versions counted.
- What is registered already is found by a read; only something new takes the writers' lock, and
  then everything is decided again under it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from registry.catalog.checking import Verdict, judge
from registry.catalog.entities import Entity, version_entity
from registry.catalog.loader import Loader, Parsed
from registry.catalog.scopes import config_of, mode_of, real_subject
from registry.model import attached, refusals
from registry.model.config import Config
from registry.model.definition import Definition, JsonObject, Reference
from registry.model.mode import Mode, must_accept_registration
from registry.model.names import valid_subject
from registry.model.subject import Subject
from registry.store import Database, schemas
from registry.store.changes import Change, add_change
from registry.store.schemas import Stored, StoredVersion

__all__ = ["Proposal", "Registrar"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A schema as a request gives it; `id` and `version` only if the caller chooses them."""

    text: str = ""
    references: tuple[Reference, ...] = ()
    metadata: JsonObject | None = None
    rules: JsonObject | None = None
    id: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class _Decision:
    """What registering a proposal would do: nothing (`existing`), or add `number`."""

    definition: Definition
    number: int
    id: int | None
    existing: StoredVersion | None = None


class Registrar:
    """Registers, looks up and checks schemas; the largest text it takes is `largest` characters."""

    def __init__(self, database: Database, loader: Loader, *, largest: int) -> None:
        self._database = database
        self._loader = loader
        self._largest = largest

    def register(
        self,
        name: str,
        proposal: Proposal,
        *,
        who: str,
        normalize: bool = False,
        form: str = "",
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
                return version_entity(connection, self._loader, known, form=form)
            if dry_run:
                return self._forecast(connection, actual, proposal, normalize)
        with self._database.write() as connection:
            version = self._add(connection, actual, proposal, normalize, who)
            return version_entity(connection, self._loader, version, form=form)

    def look_up(
        self,
        name: str,
        proposal: Proposal,
        *,
        normalize: bool = False,
        form: str = "",
        deleted: bool = False,
    ) -> Entity:
        """The version of a subject that has the proposal's content."""
        with self._database.read() as connection:
            subject = real_subject(connection, Subject.parse(name))
            versions = _visible(schemas.versions_of(connection, subject), deleted=deleted)
            if not versions:
                raise refusals.no_subject(subject)
            config = config_of(connection, subject)
            parsed = self._parse(connection, subject, proposal, config, normalize, strict=False)
            for version in reversed(versions):
                if _matches(version.schema.definition, parsed, proposal):
                    return version_entity(connection, self._loader, version, form=form)
            raise refusals.no_schema()

    def check(
        self, name: str, proposal: Proposal, number: int | str | None, *, normalize: bool = False
    ) -> Verdict:
        """Compare the proposal with one version ("latest" or a number), or as the level asks."""
        with self._database.read() as connection:
            subject = real_subject(connection, Subject.parse(name))
            config = config_of(connection, subject)
            history = _visible(schemas.versions_of(connection, subject), deleted=False)
            compared = _choose(history, number)
            metadata = self._annotations(proposal, history, config)[0]
            parsed = self._parse(connection, subject, proposal, config, normalize)
            return judge(connection, self._loader, parsed.schema, metadata, compared, config)

    def _known(
        self, connection: Connection, subject: Subject, proposal: Proposal, normalize: bool
    ) -> StoredVersion | None:
        """The live version that has this very content, found without reading all of them."""
        mode = mode_of(connection, subject)
        must_accept_registration(mode, subject, with_id=proposal.id is not None)
        latest = schemas.latest_version(connection, subject)
        history = [] if latest is None else [latest]
        definition, _ = self._define(connection, subject, proposal, history, normalize)
        return _registered(connection, subject, definition, proposal.id)

    def _forecast(
        self, connection: Connection, subject: Subject, proposal: Proposal, normalize: bool
    ) -> Entity:
        decision = self._decide(connection, subject, proposal, normalize)
        now = self._database.clock()
        stored = Stored(subject.context, decision.id or 0, decision.definition, now)
        version = StoredVersion(subject, decision.number, stored, False, now)
        entity = version_entity(connection, self._loader, version)
        if decision.id is None:
            del entity["id"]
        return entity

    def _add(
        self,
        connection: Connection,
        subject: Subject,
        proposal: Proposal,
        normalize: bool,
        who: str,
    ) -> StoredVersion:
        decision = self._decide(connection, subject, proposal, normalize)
        if decision.existing is not None:
            return decision.existing
        now, chosen = self._database.clock(), decision.id
        if chosen is None or schemas.schema_by_id(connection, subject.context, chosen) is None:
            chosen = schemas.add_schema(
                connection, subject.context, decision.definition, now, schema_id=chosen
            )
        schemas.add_version(connection, subject, decision.number, chosen, now)
        change = Change("register", str(subject), decision.number, chosen)
        add_change(connection, change, who=who, at_ms=now)
        return schemas.versions_of(connection, subject, number=decision.number)[0]

    def _decide(
        self, connection: Connection, subject: Subject, proposal: Proposal, normalize: bool
    ) -> _Decision:
        """All of a registration but its effects; raises what refuses it."""
        mode = mode_of(connection, subject)
        must_accept_registration(mode, subject, with_id=proposal.id is not None)
        every = schemas.versions_of(connection, subject)
        history = _visible(every, deleted=False)
        definition, parsed = self._define(connection, subject, proposal, history, normalize)
        existing = _registered(connection, subject, definition, proposal.id)
        highest = every[-1].number if every else 0
        if existing is not None:
            return _Decision(definition, existing.number, existing.schema.id, existing)
        if mode is Mode.IMPORT:
            return _import(connection, subject, proposal, definition, every)
        if proposal.version not in (None, highest + 1):
            raise refusals.invalid_schema(
                f"Version {proposal.version} is not one more than the previous version {highest}"
            )
        config = config_of(connection, subject)
        verdict = judge(
            connection, self._loader, parsed.schema, definition.metadata, history, config
        )
        if not verdict.is_compatible:
            raise refusals.incompatible(subject, verdict.messages, verdict.findings)
        ids = schemas.find_ids(connection, subject.context, definition)
        return _Decision(definition, highest + 1, ids[0] if ids else None)

    def _define(
        self,
        connection: Connection,
        subject: Subject,
        proposal: Proposal,
        history: Sequence[StoredVersion],
        normalize: bool,
    ) -> tuple[Definition, Parsed]:
        """The content to store: filled up from the previous version and from the settings."""
        config = config_of(connection, subject)
        metadata, rules = self._annotations(proposal, history, config)
        if not proposal.text and history:
            previous = history[-1].schema.definition
            proposal = replace(proposal, text=previous.text, references=previous.references)
        parsed = self._parse(connection, subject, proposal, config, normalize)
        return Definition(parsed.text, parsed.references, metadata, rules), parsed

    @staticmethod
    def _annotations(
        proposal: Proposal, history: Sequence[StoredVersion], config: Config
    ) -> tuple[JsonObject | None, JsonObject | None]:
        previous = history[-1].schema.definition if history else None
        metadata, rules = proposal.metadata, proposal.rules
        if metadata is None and previous is not None:
            metadata = previous.metadata
        if rules is None and previous is not None:
            rules = previous.rule_set
        return (
            attached.merged_metadata(
                config.part("defaultMetadata"), metadata, config.part("overrideMetadata")
            ),
            attached.merged_rules(
                config.part("defaultRuleSet"), rules, config.part("overrideRuleSet")
            ),
        )

    def _parse(
        self,
        connection: Connection,
        subject: Subject,
        proposal: Proposal,
        config: Config,
        normalize: bool,
        *,
        strict: bool = True,
    ) -> Parsed:
        if not proposal.text.strip():
            raise refusals.invalid_schema("Invalid schema: the schema is empty")
        if len(proposal.text) > self._largest:
            raise refusals.schema_too_large(len(proposal.text), self._largest)
        return self._loader.parse_new(
            connection,
            subject,
            proposal.text,
            proposal.references,
            normalize=normalize or config.flag("normalize", default=False),
            strict=strict and config.flag("validateNewSchemas", default=True),
        )


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
    proposal: Proposal,
    definition: Definition,
    every: Sequence[StoredVersion],
) -> _Decision:
    """A registration with the caller's id (and version): what is there is never overwritten."""
    assert proposal.id is not None
    there = schemas.schema_by_id(connection, subject.context, proposal.id)
    if there is not None and there.definition.digest != definition.digest:
        raise refusals.not_permitted(
            f"Overwrite new schema with id {proposal.id} is not permitted."
        )
    number = proposal.version or (every[-1].number if every else 0) + 1
    if any(one.number == number for one in every):
        raise refusals.not_permitted(
            f"Subject {subject} has a version {number} already, with another schema or id"
        )
    return _Decision(definition, number, proposal.id)


def _matches(stored: Definition, parsed: Parsed, proposal: Proposal) -> bool:
    """Same text and references; metadata and rules count only if the request gives them."""
    return (
        stored.text == parsed.text
        and stored.references == parsed.references
        and proposal.metadata in (None, stored.metadata)
        and proposal.rules in (None, stored.rule_set)
    )


def _visible(versions: Sequence[StoredVersion], *, deleted: bool) -> list[StoredVersion]:
    return [one for one in versions if deleted or not one.deleted]


def _choose(history: Sequence[StoredVersion], number: int | str | None) -> list[StoredVersion]:
    if number is None:
        return list(history)
    if number == "latest":
        return list(history[-1:])
    found = [one for one in history if one.number == number]
    if not found:
        raise refusals.no_version(number)
    return found
