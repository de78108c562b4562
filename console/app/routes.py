"""One function a screen: from a request to its page. No route changes anything."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Final

from ci.verdict import Consumer
from console.app.ask import Ask, NotThereError
from console.app.page import Page
from console.sources.readers import readers_of
from console.sources.subjects import SubjectRow
from console.sources.topics import TopicRow
from console.views.loads import load_list, run_page, table_page
from console.views.messages import (
    MOST,
    Filter,
    Seek,
    message_list,
    one_message,
    read_cursor,
    read_time,
)
from console.views.schema import field_paths, schema_page, subject_list
from console.views.topics import topic_list
from console.views.trying import Trial, gate_command, try_change
from headworks.errors import UnreachableError, UsageError
from headworks.registry_client import SubjectVersion
from headworks.schema import topic_of

__all__ = ["SCREENS", "WITH_FORM"]

_LONGEST_SCHEMA = 1_000_000


def topics(ask: Ask) -> Page:
    """The list of topics."""
    broker, registry, loads = (
        ask.sources.topics.latest,
        ask.sources.subjects.latest,
        ask.sources.loads.latest,
    )
    view = topic_list(broker.value, registry.value, loads.value, ask.sight, ask.wanted())
    states = (broker.state, registry.state, loads.state)
    return Page("topics.html", "Topics", view, "headworks topic list", states, live=True)


def messages(ask: Ask) -> Page:
    """Messages of a topic."""
    topic = ask.name("topic")
    row, subject = _topic(ask, topic)
    seek = Seek(
        ask.optional_number("partition", most=10**6),
        ask.optional_number("offset"),
        read_time(ask.text("time")),
        read_cursor(ask.text("from")),
        ask.number("limit", 25, least=1, most=MOST),
    )
    view = message_list(
        ask.sources.messages,
        topic,
        row.partitions,
        subject,
        seek,
        Filter(ask.text("field"), ask.text("value")),
        fields=_fields(ask, subject),
        groups=tuple(_readers(ask, topic)),
    )
    states = (ask.sources.topics.latest.state, ask.sources.subjects.latest.state)
    command = f"headworks consume {shlex.quote(topic)} --max {seek.limit}"
    return Page("messages.html", topic, view, command, states, live=seek.tail and not view.field)


def message(ask: Ask) -> Page:
    """One message."""
    topic = ask.name("topic")
    row, subject = _topic(ask, topic)
    partition, offset = ask.path_number("partition"), ask.path_number("offset")
    view = one_message(ask.sources.messages, topic, row.partitions, subject, partition, offset)
    if view is None:
        raise NotThereError(
            f"{topic} has no message at partition {partition}, offset {offset}",
            fix="it was not written yet, or retention has removed it",
        )
    command = f"headworks consume {shlex.quote(topic)} --format json"
    return Page("message.html", f"{topic} {partition}:{offset}", view, command)


def schemas(ask: Ask) -> Page:
    """The list of subjects."""
    registry = ask.sources.subjects.latest
    view = subject_list(registry.value, ask.sight, ask.wanted())
    command = "headworks schema list"
    return Page("schemas.html", "Schemas", view, command, (registry.state,), live=True)


def schema(ask: Ask) -> Page:
    """A subject: fields, versions, what changed."""
    subject = ask.name("subject")
    history = _history(ask, subject)
    numbers = [one.version for one in history]
    shown = ask.number("version", numbers[-1])
    if shown not in numbers:
        raise NotThereError(f"{subject} has no version {shown}")
    older = [number for number in numbers if number < shown]
    before = ask.optional_number("before")
    if before is not None and before not in numbers:
        raise NotThereError(f"{subject} has no version {before}")
    if before is None:
        before = older[-1] if older else None
    client = ask.sources.registry
    view = schema_page(
        history,
        {
            one.version: client.schema_text(one.id) if one.references else one.text
            for one in history
        },
        client.compatibility(subject),
        version=shown,
        before=before,
        consumers=_readers(ask, topic_of(subject)),
        producers=(),
    )
    command = f"headworks schema show {shlex.quote(f'{subject}:{shown}')}"
    if before is not None:
        names = shlex.quote(f"{subject}:{before}"), shlex.quote(f"{subject}:{shown}")
        command = f"headworks schema diff {' '.join(names)}"
    return Page("schema.html", subject, view, command, (ask.sources.subjects.latest.state,))


def trying(ask: Ask) -> Page:
    """Try a change: the form, and the verdict on what was sent with it."""
    client = ask.sources.registry
    subject = ask.sent("subject") or None
    if subject is not None and not ask.sight.subject(subject):
        raise NotThereError(f"there is no subject {subject!r}")
    latest = client.latest(subject) if subject is not None else None
    text = ask.sent("schema")
    if len(text) > _LONGEST_SCHEMA:
        raise UsageError(f"the schema is longer than {_LONGEST_SCHEMA:,} characters")
    command = gate_command(client.url)
    if not text.strip():
        start = "" if latest is None else latest.text
        view = Trial(start, subject, None, command=command)
    else:
        view = try_change(
            text,
            client,
            governance=ask.sources.governance,
            readers_of=lambda topic: _readers(ask, topic),
            subject=subject if latest is not None else None,
            beside=_beside(ask, latest),
            sees=ask.sight.subject,
        )
    return Page("try.html", "Try a change", view, command, (ask.sources.subjects.latest.state,))


def loads(ask: Ask) -> Page:
    """Loads and tables."""
    found = ask.sources.loads.latest
    view = load_list(found.value, ask.sight, ask.wanted())
    command = "headworks load status"
    return Page("loads.html", "Loads and tables", view, command, (found.state,), live=True)


def run(ask: Ask) -> Page:
    """One load."""
    number = ask.path_number("number")
    found = ask.sources.loads.latest
    view = run_page(ask.sources.places.warehouse, found.value, number, ask.sight)
    if view is None:
        raise NotThereError(f"there is no load {number}")
    command = "headworks load status --format json"
    return Page("run.html", f"Load {number}", view, command, (found.state,))


def table(ask: Ask) -> Page:
    """The table of a topic."""
    topic = ask.name("topic")
    found = ask.sources.loads.latest
    view = None
    if ask.sight.topic(topic):
        view = table_page(ask.sources.places.warehouse, found.value, topic)
    if view is None:
        raise NotThereError(f"there is no table of a topic {topic!r}", fix="headworks load run")
    command = f'headworks sql "DESCRIBE {view.table.table}"'
    return Page("table.html", f"Table {view.table.table}", view, command, (found.state,))


def _topic(ask: Ask, topic: str) -> tuple[TopicRow, SubjectRow | None]:
    """A topic and its subject. Without the registry nothing is known of what must be masked."""
    broker, registry = ask.sources.topics.latest, ask.sources.subjects.latest
    if broker.value is None:
        raise UnreachableError(broker.state.problem or "the broker was not heard of yet")
    row = broker.value.rows.get(topic) if ask.sight.topic(topic) else None
    if row is None:
        raise NotThereError(f"there is no topic {topic!r}", fix="headworks topic list")
    if registry.value is None:
        raise UnreachableError(
            registry.state.problem or "the registry was not heard of yet",
            fix="messages are shown when it is known what must be masked",
        )
    return row, registry.value.of_topic(topic)


def _history(ask: Ask, subject: str) -> list[SubjectVersion]:
    found: list[SubjectVersion] = []
    if ask.sight.subject(subject):
        listed = ask.sources.registry.listing(subject)
        found = sorted(
            (one for one in listed if one.subject == subject), key=lambda one: one.version
        )
    if not found:
        raise NotThereError(f"there is no subject {subject!r}", fix="headworks schema list")
    return found


def _fields(ask: Ask, subject: SubjectRow | None) -> tuple[str, ...]:
    """The paths that a filter may name, as the form offers them."""
    if subject is None or not ask.sight.subject(subject.subject):
        return ()
    return field_paths(ask.sources.registry.schema_text(subject.schema_id))


def _readers(ask: Ask, topic: str | None) -> list[Consumer]:
    if topic is None or not ask.sight.topic(topic):
        return []
    return readers_of(topic, ask.sources.governance, ())


def _beside(ask: Ask, latest: SubjectVersion | None) -> dict[str, str]:
    """The schemas that the latest version refers to: a proposal may use their types."""
    if latest is None:
        return {}
    return {
        f"{one.subject}-{one.version}.avsc": ask.sources.registry.version(
            one.subject, one.version
        ).text
        for one in latest.references
        if ask.sight.subject(one.subject)
    }


SCREENS: Final[dict[str, Callable[[Ask], Page]]] = {
    "/topics": topics,
    "/topics/{topic}/messages": messages,
    "/topics/{topic}/messages/{partition}/{offset}": message,
    "/schemas": schemas,
    "/schemas/{subject}/versions": schema,
    "/try": trying,
    "/loads": loads,
    "/loads/{number}/topics": run,
    "/tables/{topic}/columns": table,
}
# Screens that take a form, which may be too long for an address.
WITH_FORM: Final = frozenset({"/try"})
