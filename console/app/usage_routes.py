"""The users of a subject's versions: their page, and what the subject's own page shows of them.

Rule: a group that the principal may not see is never named, and never denied either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from headworks._console.app.commands import headworks
from headworks._console.app.page import Page
from headworks._console.app.request import PageNotFoundError, PageRequest
from headworks.errors import UnreachableError, UsageError

if TYPE_CHECKING:
    from headworks._audit.usage import ReadingGroup, SubjectUsage, VersionUser
    from headworks._audit.usage_reader import AskReaders
    from headworks.registry_client import SubjectVersion

# Where the command of the page asks, unless it is where it does anyway.
_AUDIT = ("bootstrap", "zookeeper", "registry", "store")
_HIDDEN_TIER = "consumer"
_HIDDEN_READER = "a group that you may not see"


def usage(request: PageRequest) -> Page:
    """Show who writes and reads each version of a subject."""
    subject, found = request.name("subject"), None
    if request.visibility.subject(subject):
        history = request.sources.histories(subject, deleted=True)
        found = _usage(request, subject, history, _readers(request), fingerprints=True)
    if found is None:
        raise PageNotFoundError(
            f"nobody has counted messages of a subject {subject!r}",
            fix="headworks audit run keeps the counts; producers of the SDK send them",
        )
    command = headworks(request.sources, "schema", "usage", names=(subject,), at=_AUDIT)
    return Page("usage.html", f"Usage of {subject}", found, command)


def known_usage(
    request: PageRequest, subject: str, history: Sequence[SubjectVersion]
) -> SubjectUsage | None:
    """Return the usage of a subject as the sources know it, without waiting for any; or None."""
    if request.sources.audit.latest.value is None:  # its store may be being checked
        return None
    ask = None if request.sources.groups.latest.value is None else _readers(request)
    try:
        return _usage(request, subject, history, ask, fingerprints=False)
    except UnreachableError:  # said by the state of the audit, beside what is known without it
        return None


def _usage(
    request: PageRequest,
    subject: str,
    history: Sequence[SubjectVersion],
    ask_readers: AskReaders | None,
    *,
    fingerprints: bool,
) -> SubjectUsage | None:
    """Return the usage that the principal may see; None without counts, or a topic to see."""
    sources, visibility = request.sources, request.visibility
    found = None
    with suppress(UsageError):  # the registry does not have it
        found = sources.audits.usage(
            sources.registry, subject, history, ask_readers, fingerprints=fingerprints
        )
    if found is None or not all(map(visibility.topic, found.topics)):
        return None
    unknown = found.unknown_readers
    if unknown is not None:
        seen = tuple(filter(visibility.group, unknown))
        hidden = len(unknown) - len(seen)
        unknown = (*seen, f"{hidden} hidden groups") if hidden else seen
    return replace(
        found,
        versions=tuple(replace(one, read_by=_seen(request, one.read_by)) for one in found.versions),
        dict_readers=_seen(request, found.dict_readers),
        unregistered_readers=_seen(request, found.unregistered_readers),
        uncounted=_seen(request, found.uncounted),
        unknown_readers=unknown,
    )


def _seen(request: PageRequest, users: Iterable[VersionUser]) -> tuple[VersionUser, ...]:
    """Return the users; those of groups that the principal may not see have no names."""
    return tuple(
        one
        if one.group is None or request.visibility.group(one.group)
        else replace(one, tier=_HIDDEN_TIER, application=_HIDDEN_READER, hosts=())
        for one in users
    )


def _readers(request: PageRequest) -> AskReaders | None:
    """Return a function that returns the groups of topics, as they were read last.

    Before the first reading, it asks the broker: the gate takes an unknown reader as a user. None:
    the broker does not answer.
    """
    last = request.sources.groups.latest
    if last.value is None and last.state.problem is not None:
        return None

    def ask(topics: Collection[str]) -> Sequence[ReadingGroup]:
        from headworks._audit.usage import ReadingGroup
        from headworks._audit.usage_reader import group_readers

        groups = last.value
        if groups is None:
            at = request.sources.endpoints
            return group_readers(at.bootstrap, at.zookeeper)(topics)
        return [
            ReadingGroup(topic, name, groups.rows[name].group.active)
            for topic in topics
            for name in groups.by_topic.get(topic, ())
        ]

    return ask
