"""The path of every screen (`SCREENS`), and functions from a request to a page.

The functions of audit, charts, groups, and others are in the `*_routes` modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from headworks._audit.usage import deprecations
from headworks._console.app.audit_routes import audit, audits, home, window
from headworks._console.app.chart_routes import charts, charts_of_group, span_of
from headworks._console.app.commands import gate_command, headworks
from headworks._console.app.dead_letter_routes import dead_letters
from headworks._console.app.lineage_routes import lineage, lineage_of_all
from headworks._console.app.load_routes import loads, quarantine, run, table
from headworks._console.app.message_routes import message, messages
from headworks._console.app.page import Page
from headworks._console.app.reader_names import has_hidden_readers, readers_for
from headworks._console.app.request import PageNotFoundError, PageRequest
from headworks._console.app.search_routes import search_everything
from headworks._console.app.usage_routes import known_usage, usage
from headworks._console.views.groups import group_list, group_page
from headworks._console.views.schema import schema_page, subject_list
from headworks._console.views.topics import topic_list
from headworks.errors import UnreachableError, UsageError
from headworks.registry_client import SubjectVersion
from headworks.schema import topic_of

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
    period, charts = charts_of_group(request, name)
    view = replace(view, span=span_of(request), period=period, charts=charts)
    command = headworks(request.sources, "group", "describe", names=(name,), at=_BROKER)
    live = period.is_newest
    return Page("group.html", name, view, command, (found.state,), live=live)


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
    used = known_usage(request, subject, history)
    view = schema_page(
        history,
        {
            one.version: client.schema_text(one.id, subject) if one.references else one.text
            for one in history
        },
        client.compatibility(subject),
        version=shown,
        before=before,
        consumers=readers_for(request, topic_of(subject)),
        hidden_consumers=has_hidden_readers(request, topic_of(subject)),
        producers=_producers(request, topic_of(subject)),
        usage=used,
        deprecated=(
            deprecations(client.deprecated_versions(subject), history)
            if used is None
            else {one.version: one.deprecated for one in used.versions if one.deprecated}
        ),
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
            readers_of=lambda topic: readers_for(request, topic),
            subject=subject if latest is not None else None,
            beside=_referenced_schemas(request, latest),
            sees=request.visibility.subject,
        )
    command = gate_command(request.sources)
    return Page("try.html", "Try a change", view, command, (request.sources.subjects.latest.state,))


def _history(request: PageRequest, subject: str) -> list[SubjectVersion]:
    found: list[SubjectVersion] = []
    if request.visibility.subject(subject):
        found = request.sources.histories(subject)
    if not found:
        raise PageNotFoundError(f"there is no subject {subject!r}", fix="headworks schema list")
    return found


def _producers(request: PageRequest, topic: str | None) -> Sequence[str]:
    """Return the applications that counted into a topic's newest windows."""
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
    "/search": search_everything,
    "/topics/{topic}/charts": charts,
    "/topics/{topic}/lineage": lineage,
    "/lineage": lineage_of_all,
    "/topics/{topic}/dead-letters": dead_letters,
    "/topics/{topic}/messages": messages,
    "/topics/{topic}/messages/{partition}/{offset}": message,
    "/schemas": schemas,
    "/schemas/{subject}/versions": schema,
    "/schemas/{subject}/usage": usage,
    "/try": try_schema,
    "/loads": loads,
    "/quarantine": quarantine,
    "/loads/{number}/topics": run,
    "/tables/{topic}/columns": table,
}
# Screens that are also CSV, under the same path with `.csv`.
AS_CSV: Final = frozenset({"/topics/{topic}/messages"})
# Screens that take a form: it may be too long for an address, or it sends dead letters back.
WITH_FORM: Final = frozenset({"/try", "/topics/{topic}/dead-letters"})
