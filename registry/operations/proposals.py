"""From what a request proposes to what would be stored: text, references, metadata, rule set.

Rules:

- A proposal without a text means the previous version's, one without metadata or rules those of
  the previous version; then the settings' defaults go under and their overrides over them.
- In mode IMPORT nothing is filled in, and the text is read leniently: another registry took it.
- What is kept is canonical text, so that two spellings of one schema are one schema.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import Connection

from headworks._registry.model import metadata_and_rules, refusals
from headworks._registry.model.config import Config
from headworks._registry.model.definition import Definition, JsonObject, SchemaReference
from headworks._registry.model.schema_limits import SchemaLimits
from headworks._registry.model.tags import Tags, inline_tags, retagged
from headworks._registry.operations.parsed_schemas import ParsedSchema, SchemaCache
from headworks._registry.store.schemas import StoredSchema, StoredVersion
from headworks._subject import Subject
from headworks.schema import Schema

__all__ = [
    "NUMBERED",
    "Candidate",
    "CandidateBuilder",
    "ProposedSchema",
    "annotated",
    "is_equivalent",
    "is_same_schema",
]

# A proposal's version: the next one, whichever it is, and its number kept in the metadata.
NUMBERED = -1


@dataclass(frozen=True, slots=True)
class ProposedSchema:
    """A schema as a request gives it.

    `id` is set only if the caller chooses it. `version` is None, NUMBERED, or the number that the
    new version must have (compare-and-set); with the latter two the metadata holds the number.
    `keeps_tags` carries over the inline tags of the previous version.
    """

    text: str = ""
    references: tuple[SchemaReference, ...] = ()
    metadata: JsonObject | None = None
    rules: JsonObject | None = None
    id: int | None = None
    version: int | None = None
    add_tags: Tags = field(default_factory=dict)
    remove_tags: Tags = field(default_factory=dict)
    keeps_tags: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """What would be stored, and its nodes (their pointers are into the proposed text)."""

    definition: Definition
    schema: Schema


class CandidateBuilder:
    """Makes drafts of proposals whose text is within `limits`."""

    def __init__(self, schema_cache: SchemaCache, limits: SchemaLimits) -> None:
        self._schema_cache = schema_cache
        self._limits = limits

    def draft(
        self,
        connection: Connection,
        subject: Subject,
        proposal: ProposedSchema,
        previous: StoredVersion | None,
        config: Config,
        number: int,
        *,
        normalize: bool,
        importing: bool = False,
    ) -> Candidate:
        """The proposal as the subject's version `number`; ServiceError 42201 if it cannot be."""
        before = None if importing or previous is None else previous.schema
        parsed = self.parse(
            connection, subject, proposal, config, before, normalize=normalize, strict=not importing
        )
        metadata, rules = proposal.metadata or None, proposal.rules or None
        if not importing:
            metadata, rules = annotated(proposal, before, config)
            if proposal.version is not None or metadata_and_rules.has_number(metadata):
                metadata = metadata_and_rules.numbered(metadata, number)
        return Candidate(Definition(parsed.text, parsed.references, metadata, rules), parsed.schema)

    def parse(
        self,
        connection: Connection,
        subject: Subject,
        proposal: ProposedSchema,
        config: Config,
        previous: StoredSchema | None = None,
        *,
        normalize: bool,
        strict: bool = True,
    ) -> ParsedSchema:
        """The proposal's text (or the previous one) with its references, read and printed."""
        text, references = proposal.text, proposal.references
        if not text.strip():
            if previous is None:
                raise refusals.invalid_schema("Invalid schema: the schema is empty")
            text, references = previous.definition.text, previous.definition.references
        self._limits.check(text)
        if proposal.keeps_tags and previous is not None:
            tags = inline_tags(self._schema_cache.load(connection, previous))
            text = retagged(text, tags, {}, lenient=True)
        if proposal.add_tags or proposal.remove_tags:
            text = retagged(text, proposal.add_tags, proposal.remove_tags)
        return self._schema_cache.parse_new(
            connection,
            subject,
            text,
            references,
            normalize=normalize or config.flag("normalize", default=False),
            strict=strict and config.flag("validateNewSchemas", default=True),
        )


def annotated(
    proposal: ProposedSchema, previous: StoredSchema | None, config: Config
) -> tuple[JsonObject | None, JsonObject | None]:
    """Metadata and rule set: given, or the previous version's; between defaults and overrides."""
    metadata, rules = proposal.metadata, proposal.rules
    if metadata is None and previous is not None:
        metadata = previous.definition.metadata
    if rules is None and previous is not None:
        rules = previous.definition.rule_set
    return (
        metadata_and_rules.merged_metadata(
            config.part("defaultMetadata"), metadata, config.part("overrideMetadata")
        ),
        metadata_and_rules.merged_rules(
            config.part("defaultRuleSet"), rules, config.part("overrideRuleSet")
        ),
    )


def is_equivalent(
    connection: Connection, schema_cache: SchemaCache, stored: StoredSchema, definition: Definition
) -> bool:
    """Whether content means what is stored: but for its version's number, and for references
    that are written out in the text instead."""
    there = stored.definition
    if there.rule_set != definition.rule_set:
        return False
    if metadata_and_rules.unnumbered(there.metadata) != metadata_and_rules.unnumbered(
        definition.metadata
    ):
        return False
    return is_same_schema(connection, schema_cache, stored, definition)


def is_same_schema(
    connection: Connection, schema_cache: SchemaCache, stored: StoredSchema, definition: Definition
) -> bool:
    """Whether text and references are those stored, or the text has the references written out."""
    there = stored.definition
    if there.references == definition.references:
        return there.text == definition.text
    if definition.references:
        return False
    return schema_cache.resolved_text(connection, stored) == definition.text
