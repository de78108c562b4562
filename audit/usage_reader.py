"""The usage of subjects, read from the audit's store, a registry, and a broker's groups.

Rules: a broker that does not answer leaves the unknown readers unknown, and never means that there
are none. Reading changes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

from headworks._audit.store import AuditStore
from headworks._audit.store.evidence import last_hole
from headworks._audit.store.schema_uses import schema_uses
from headworks._audit.usage import (
    KnownVersion,
    ReadingGroup,
    SubjectUsage,
    deprecations,
    subject_usage,
)
from headworks.errors import HeadworksError, RefusedError, SchemaError, UsageError
from headworks.registry_client import RegistryClient, SubjectVersion
from headworks.schema import governance_of, parse, topic_of
from headworks.schema._canonical import fingerprint

_log = logging.getLogger(__name__)
_KEY_SUFFIX = "-key"
_KEPT_FINGERPRINTS = 2_000  # of texts of some KB

# Returns the groups with committed offsets of topics.
AskReaders = Callable[[Collection[str]], Sequence[ReadingGroup]]


def read_usage(
    store: AuditStore,
    registry: RegistryClient,
    subject: str,
    ask_readers: AskReaders | None = None,
    *,
    history: Sequence[SubjectVersion] | None = None,
    as_of: int | None = None,
    fingerprints: bool = True,
) -> SubjectUsage:
    """Return the usage of a subject, soft-deleted versions included.

    `history` has all versions (None: they are read from the registry). `as_of` is when the store
    was up to date, in ms since 1970 (None: now). Without `fingerprints`, no version is parsed, and
    none is found by its content. Raises UsageError if the registry has no such
    subject, and UnreachableError if it or the store does not answer.
    """
    if history is None:
        listed = registry.list_versions(subject, deleted=True)
        history = [one for one in listed if one.subject == subject]
    if not history:
        raise UsageError(
            f"{registry.url} has no subject {subject!r}",
            fix="headworks schema list shows the subjects",
        )
    topics = topics_of(subject, history)
    deprecated = deprecations(registry.deprecated_versions(subject), history)
    readers: Sequence[ReadingGroup] | None = None
    if ask_readers is not None:
        try:
            readers = ask_readers(topics)
        except HeadworksError as error:
            _log.warning("unknown readers are not known: %s", error.message)
    return subject_usage(
        subject,
        [
            KnownVersion(
                *(one.version, one.id),
                deprecated.get(one.version, ""),
                _fingerprint(one, registry) if fingerprints else "",
            )
            for one in history
        ],
        [] if _plain_name(subject).endswith(_KEY_SUFFIX) else schema_uses(store, topics),
        readers,
        topics=topics,
        as_of=time.time_ns() // 1_000_000 if as_of is None else as_of,
        last_hole=last_hole(store),
    )


def topics_of(subject: str, history: Sequence[SubjectVersion]) -> tuple[str, ...]:
    """Return the topics of a subject's messages: by its name, or as its latest schema says."""
    name = _plain_name(subject)
    named = topic_of(name)
    if named is not None:
        return (named,)
    if name.endswith(_KEY_SUFFIX):
        return (name.removesuffix(_KEY_SUFFIX),)
    for one in reversed(history):
        try:
            found = governance_of(parse(one.text, strict=False)).topic
        except SchemaError:
            continue
        if found is not None:
            return (found,)
    return ()


def group_readers(bootstrap: str, zookeeper: str | None = None) -> AskReaders:
    """Return a function that asks the broker at `bootstrap` for the groups of topics."""

    def ask(topics: Collection[str]) -> list[ReadingGroup]:
        from headworks.groups import Groups

        with Groups(bootstrap, zookeeper) as groups:
            return [
                ReadingGroup(topic, group.name, group.active)
                for group in groups.described(age_timeout=0)
                for topic in sorted({at.topic for at in group.offsets} & set(topics))
            ]

    return ask


def _fingerprint(one: SubjectVersion, registry: RegistryClient) -> str:
    try:
        text = registry.schema_text(one.id, one.subject) if one.references else one.text
    except (SchemaError, RefusedError):
        return ""
    return _text_fingerprint(text)


@lru_cache(maxsize=_KEPT_FINGERPRINTS)
def _text_fingerprint(text: str) -> str:
    try:
        return fingerprint(parse(text, strict=False))
    except SchemaError:
        return ""


def _plain_name(subject: str) -> str:
    """Return a subject without its context."""
    return subject[subject.find(":", 1) + 1 :] if subject.startswith(":.") else subject
