"""The pages of a topic's messages. No route changes anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headworks._console.app.commands import curl
from headworks._console.app.csv_table import CsvTable
from headworks._console.app.page import Page
from headworks._console.app.reader_names import has_hidden_readers, readers_for
from headworks._console.app.request import PageNotFoundError, PageRequest
from headworks._console.app.view_log import ViewLog
from headworks._console.sources.shown_message import ShownMessage
from headworks._console.sources.subjects import SubjectRow
from headworks._console.views.groups import topic_consumers
from headworks._console.views.message_columns import csv_columns, csv_rows, read_columns
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
from headworks._console.views.schema import field_paths
from headworks.errors import UnreachableError
from headworks.schema import key_subject_of


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
            topic,
            readers_for(request, topic),
            request.sources.groups.latest.value,
            request.visibility,
        ),
    )
    _note(request, topic, view.rows, filtered=bool(filters.kept))
    columns = read_columns(request.http.query_params.getlist("columns"))
    hidden, kept = has_hidden_readers(request, topic), request.sources.retention(topic)
    view = replace(view, hidden_readers=hidden, columns=columns, kept=kept)
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
        table=CsvTable(csv_columns(columns), csv_rows(view.rows, columns)),
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
    _note(request, topic, (view.message,), filtered=False)
    return Page("message.html", f"{topic} {partition}:{offset}", view, curl(request.http))


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


def _fields(request: PageRequest, subject: SubjectRow | None) -> tuple[str, ...]:
    """Return the paths that the form offers for a filter."""
    if subject is None or not request.visibility.subject(subject.subject):
        return ()
    return field_paths(request.sources.registry.schema_text(subject.schema_id))


def _note(
    request: PageRequest, topic: str, rows: Sequence[ShownMessage], *, filtered: bool
) -> None:
    """Record who looks at which messages."""
    log: ViewLog = request.http.app.state.view_log
    log.note(request.http, topic, rows, filtered=filtered)
