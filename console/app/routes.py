"""One function per screen: from a request to its page. No route changes anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headworks._ci.verdict import DownstreamConsumer
from headworks._console.app.audit_routes import audit, audits, home, window
from headworks._console.app.commands import curl, gate_command, headworks
from headworks._console.app.load_routes import loads, quarantine, run, table
from headworks._console.app.page import Page
from headworks._console.app.request import PageNotFoundError, PageRequest
from headworks._console.sources.subjects import SubjectRow
from headworks._console.sources.topic_readers import readers_of
from headworks._console.views.groups import group_list, group_page, topic_consumers
from headworks._console.views.messages import (
    MAX_MESSAGES,
    SoughtMessages,
    StartPosition,
    TopicSchemas,
    message_list,
    one_message,
    read_cursor,
    read_time,
)
from headworks._console.views.schema import field_paths, schema_page, subject_list
from headworks._console.views.topics import topic_list
from headworks.errors import UnreachableError, UsageError
from headworks.registry_client import SubjectVersion
from headworks.schema import key_subject_of, topic_of

_MAX_SCHEMA_CHARACTERS = 1_000_000
# Where the commands of a page ask, unless it is where they do anyway.
_BROKER = ("bootstrap", "zookeeper")


def groups(request: PageRequest) -> Page:
    """List the consumer groups."""
    found = request.sources.groups.latest
    view = group_list(found.value, request.visibility, request.list_query())
    command = headworks(request.sources, "group", "list", "--lag", at=_BROKER)
    return Page("groups.html", "Consumer groups", view, command, (found.state,), live=True)


def group(request: PageRequest) -> Page:
    """Show one consumer group."""
    name = request.name("group")
    found = request.sources.groups.latest
    view = group_page(found.value, name, request.visibility)
    if view is None:
        raise PageNotFoundError(f"there is no group {name!r}", fix="headworks group list")
    command = headworks(request.sources, "group", "describe", names=(name,), at=_BROKER)
    return Page("group.html", name, view, command, (found.state,), live=True)


def topics(request: PageRequest) -> Page:
    """List the topics."""
    broker, registry, loads = (
        request.sources.topics.latest,
        request.sources.subjects.latest,
        request.sources.loads.latest,
    )
    view = topic_list(
        broker.value, registry.value, loads.value, request.visibility, request.list_query()
    )
    states = (broker.state, registry.state, loads.state)
    command = headworks(request.sources, "topic", "list", at=("bootstrap",))
    return Page("topics.html", "Topics", view, command, states, live=True)


def messages(request: PageRequest) -> Page:
    """Show messages of a topic."""
    topic = request.name("topic")
    governed = _topic_schemas(request, topic)
    seek = StartPosition(
        request.optional_number("partition", maximum=10**6),
        request.optional_number("offset"),
        read_time(request.text("time")),
        read_cursor(request.text("from")),
        request.number("limit", 25, minimum=1, maximum=MAX_MESSAGES),
        read_cursor(request.text("before")),
    )
    filters = SoughtMessages.read(
        request.text("find"), request.text("field"), request.text("value")
    )
    view = message_list(
        request.sources.messages,
        governed,
        seek,
        filters,
        fields=_fields(request, governed.subject),
        readers=topic_consumers(
            topic, _readers(request, topic), request.sources.groups.latest.value, request.visibility
        ),
    )
    view = replace(view, hidden_readers=_has_hidden_readers(request, topic))
    states = (
        request.sources.topics.latest.state,
        request.sources.subjects.latest.state,
        request.sources.groups.latest.state,
    )
    return Page(
        "messages.html",
        topic,
        view,
        curl(request.http),
        states,
        live=view.newest_first and not filters.kept,
    )


def message(request: PageRequest) -> Page:
    """Show one message."""
    topic = request.name("topic")
    governed = _topic_schemas(request, topic)
    partition, offset = request.path_number("partition"), request.path_number("offset")
    view = one_message(request.sources.messages, governed, partition, offset)
    if view is None:
        raise PageNotFoundError(
            f"{topic} has no message at partition {partition}, offset {offset}",
            fix="it was not written yet, or retention has removed it",
        )
    return Page("message.html", f"{topic} {partition}:{offset}", view, curl(request.http))


def schemas(request: PageRequest) -> Page:
    """List the subjects."""
    registry = request.sources.subjects.latest
    view = subject_list(registry.value, request.visibility, request.list_query())
    command = headworks(request.sources, "schema", "list", at=("registry",))
    return Page("schemas.html", "Schemas", view, command, (registry.state,), live=True)


def schema(request: PageRequest) -> Page:
    """Show a subject: its fields, versions, and changes."""
    subject = request.name("subject")
    history = _history(request, subject)
    numbers = [one.version for one in history]
    shown = request.number("version", numbers[-1])
    if shown not in numbers:
        raise PageNotFoundError(f"{subject} has no version {shown}")
    older = [number for number in numbers if number < shown]
    before = request.optional_number("before")
    if before is not None and before not in numbers:
        raise PageNotFoundError(f"{subject} has no version {before}")
    if before is None:
        before = older[-1] if older else None
    client = request.sources.registry
    view = schema_page(
        history,
        {
            one.version: client.schema_text(one.id, subject) if one.references else one.text
            for one in history
        },
        client.compatibility(subject),
        version=shown,
        before=before,
        consumers=_readers(request, topic_of(subject)),
        hidden_consumers=_has_hidden_readers(request, topic_of(subject)),
        producers=_producers(request, topic_of(subject)),
    )
    names = tuple(f"{subject}:{one}" for one in (before, shown) if one is not None)
    verb = "show" if before is None else "diff"
    command = headworks(request.sources, "schema", verb, names=names, at=("registry",))
    states = (
        request.sources.subjects.latest.state,
        request.sources.groups.latest.state,
        request.sources.audit.latest.state,
    )
    return Page("schema.html", subject, view, command, states)


def try_schema(request: PageRequest) -> Page:
    """Show the form for a schema change, and the verdict on a posted schema."""
    from headworks._console.views.try_schema import (  # the gate: not for the first page
        TrialResult,
        try_change,
    )

    client = request.sources.registry
    subject = request.form_value("subject") or None
    if subject is not None and not request.visibility.subject(subject):
        raise PageNotFoundError(f"there is no subject {subject!r}")
    latest = client.latest(subject) if subject is not None else None
    text = request.form_value("schema")
    if len(text) > _MAX_SCHEMA_CHARACTERS:
        raise UsageError(f"the schema is longer than {_MAX_SCHEMA_CHARACTERS:,} characters")
    if not text.strip():
        start = "" if latest is None else latest.text
        view = TrialResult(start, subject, None)
    else:
        view = try_change(
            text,
            client,
            governance=request.sources.governance(),
            readers_of=lambda topic: _readers(request, topic),
            subject=subject if latest is not None else None,
            beside=_referenced_schemas(request, latest),
            sees=request.visibility.subject,
        )
    command = gate_command(request.sources)
    return Page("try.html", "Try a change", view, command, (request.sources.subjects.latest.state,))


def _topic_schemas(request: PageRequest, topic: str) -> TopicSchemas:
    """Return a topic and its subjects. Raises UnreachableError without the registry, because the
    masked fields are unknown.
    """
    broker, registry = request.sources.topics.latest, request.sources.subjects.latest
    if broker.value is None:
        raise UnreachableError(broker.state.problem or "the broker has not been read yet")
    row = broker.value.rows.get(topic) if request.visibility.topic(topic) else None
    if row is None:
        raise PageNotFoundError(f"there is no topic {topic!r}", fix="headworks topic list")
    if registry.value is None:
        raise UnreachableError(
            registry.state.problem or "the registry has not been read yet",
            fix="messages are shown when it is known what must be masked",
        )
    keys = registry.value.rows.get(key_subject_of(topic))
    return TopicSchemas(row, registry.value.of_topic(topic), keys.version if keys else None)


def _history(request: PageRequest, subject: str) -> list[SubjectVersion]:
    found: list[SubjectVersion] = []
    if request.visibility.subject(subject):
        listed = request.sources.registry.list_versions(subject)
        found = sorted(
            (one for one in listed if one.subject == subject), key=lambda one: one.version
        )
    if not found:
        raise PageNotFoundError(f"there is no subject {subject!r}", fix="headworks schema list")
    return found


def _fields(request: PageRequest, subject: SubjectRow | None) -> tuple[str, ...]:
    """Return the paths that the form offers for a filter."""
    if subject is None or not request.visibility.subject(subject.subject):
        return ()
    return field_paths(request.sources.registry.schema_text(subject.schema_id))


def _readers(request: PageRequest, topic: str | None) -> list[DownstreamConsumer]:
    if topic is None or not request.visibility.topic(topic):
        return []
    known = request.sources.groups.latest.value
    names = known.by_topic.get(topic, ()) if known else ()
    seen = [name for name in names if request.visibility.group(name)]
    return readers_of(topic, request.sources.governance(), seen)


def _has_hidden_readers(request: PageRequest, topic: str | None) -> bool:
    """Return whether groups read a topic that the principal may not see."""
    known = request.sources.groups.latest.value
    if topic is None or known is None or not request.visibility.topic(topic):
        return False
    return not all(request.visibility.group(name) for name in known.by_topic.get(topic, ()))


def _producers(request: PageRequest, topic: str | None) -> list[str]:
    """Return the applications that counted into a topic's newest window."""
    known = request.sources.audit.latest.value
    if topic is None or known is None or not request.visibility.topic(topic):
        return []
    try:
        return request.sources.audits.producers(topic)
    except UnreachableError:  # said by the state of the audit, beside what is known without it
        return []


def _referenced_schemas(request: PageRequest, latest: SubjectVersion | None) -> dict[str, str]:
    """Return the schemas that the latest version references: a proposal may use their types."""
    if latest is None:
        return {}
    return {
        f"{one.subject}-{one.version}.avsc": request.sources.registry.version(
            one.subject, one.version
        ).text
        for one in latest.references
        if request.visibility.subject(one.subject)
    }


SCREENS: Final[dict[str, Callable[[PageRequest], Page]]] = {
    "/": home,
    "/home": home,
    "/audit": audits,
    "/audit/{topic}/windows": audit,
    "/audit/{topic}/windows/{start}": window,
    "/groups": groups,
    "/groups/{group}/lag": group,
    "/topics": topics,
    "/topics/{topic}/messages": messages,
    "/topics/{topic}/messages/{partition}/{offset}": message,
    "/schemas": schemas,
    "/schemas/{subject}/versions": schema,
    "/try": try_schema,
    "/loads": loads,
    "/quarantine": quarantine,
    "/loads/{number}/topics": run,
    "/tables/{topic}/columns": table,
}
# Screens that take a form, which may be too long for an address.
WITH_FORM: Final = frozenset({"/try"})
