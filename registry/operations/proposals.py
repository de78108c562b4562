"""From a proposed schema to the candidate that would be stored.

Rules:

- A proposal without a text, metadata, or rules takes those of the previous version. The settings
  then add their defaults, and their overrides win.
- In mode IMPORT nothing is filled in, and the text is parsed leniently: another registry has
  already accepted it.
- The stored text is canonical, so that two spellings of one schema are one schema.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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

# A proposal's version: the next one, whatever its number, which the metadata then holds.
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

    @property
    def changes_tags(self) -> bool:
        """Whether the stored text differs from the given one in its inline tags."""
        return bool(self.keeps_tags or self.add_tags or self.remove_tags)


@dataclass(frozen=True, slots=True)
class Candidate:
    """The content that would be stored, and its nodes, which point into the proposed text."""

    definition: Definition
    schema: Schema


class CandidateBuilder:
    """Builds candidates from proposals whose text is within `limits`."""

    def __init__(self, schema_cache: SchemaCache, limits: SchemaLimits) -> None:
        self._schema_cache = schema_cache
        self._limits = limits

    def build(
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
        """Return the proposal as the subject's version `number`; ServiceError 42201 if invalid."""
        before = None if importing or previous is None else previous.schema
        parsed = self.parse(
            connection, subject, proposal, config, before, normalize=normalize, strict=not importing
        )
        metadata, rules = proposal.metadata or None, proposal.rules or None
        if not importing:
            metadata, rules = annotated(proposal, before, config)
            if proposal.version is not None or metadata_and_rules.has_number(metadata):
                metadata = metadata_and_rules.numbered(metadata, number)
        definition = parsed.content
        if metadata is not None or rules is not None:
            definition = replace(definition, metadata=metadata, rule_set=rules)
        return Candidate(definition, parsed.schema)

    def likely_digest(self, proposal: ProposedSchema, *, normalize: bool) -> str:
        """Return the digest that a proposal has unless settings change it; "" if it is unknown."""
        known = self._schema_cache.known(proposal.text, normalize=normalize, strict=True)
        if known is None or proposal.references or proposal.metadata or proposal.rules:
            return ""
        return known.content.digest

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
        printed: bool = True,
    ) -> ParsedSchema:
        """Parse the proposal's text, or the previous text, with its references.

        Without `printed`, the canonical text is left empty.
        """
        text, references = proposal.text, proposal.references
        if not text.strip():
            if previous is None:
                raise refusals.invalid_schema("Invalid schema: the schema is empty")
            text, references = previous.definition.text, previous.definition.references
        normalize = normalize or config.flag("normalize", default=False)
        strict = strict and _is_strict(config)
        known = self._schema_cache.known(text, normalize=normalize, strict=strict)
        if known is not None and not (references or proposal.changes_tags):
            return known
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
            normalize=normalize,
            strict=strict,
            printed=printed,
        )

    def parse_alone(self, proposal: ProposedSchema, config: Config) -> ParsedSchema:
        """Parse a text that has no references, and leave the canonical text empty."""
        self._limits.check(proposal.text)
        return self._schema_cache.parse_alone(proposal.text, strict=_is_strict(config))


def _is_strict(config: Config) -> bool:
    return config.flag("validateNewSchemas", default=True)


def annotated(
    proposal: ProposedSchema, previous: StoredSchema | None, config: Config
) -> tuple[JsonObject | None, JsonObject | None]:
    """Return the metadata and rule set that a registration would store."""
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
    """Return whether content equals a stored schema.

    The number of the version may differ, and references may be written out in the text.
    """
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
    """Return whether text and references are equal, or the text has the references written out."""
    there = stored.definition
    if there.references == definition.references:
        return there.text == definition.text
    if definition.references:
        return False
    return schema_cache.resolved_text(connection, stored) == definition.text
