"""One function a screen: from a request to its page. No route changes anything."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headworks._ci.verdict import Consumer
from headworks._console.app.commands import curl, gate_command, headworks
from headworks._console.app.formatting import iso
from headworks._console.app.page import Page
from headworks._console.app.request import Ask, NotThereError
from headworks._console.sources.subjects import SubjectRow
from headworks._console.sources.topic_readers import readers_of
from headworks._console.views.audit import audit_page, window_page
from headworks._console.views.groups import group_list, group_page, topic_readers
from headworks._console.views.health import health_page
from headworks._console.views.loads import load_list, run_page, table_page
from headworks._console.views.messages import (
    MOST,
    Filter,
    Governed,
    Seek,
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

__all__ = ["SCREENS", "WITH_FORM"]

_LONGEST_SCHEMA = 1_000_000
_TIER = "hadoop"
# Where the commands of a page ask, unless it is where they do anyway.
_BROKER = ("bootstrap", "zookeeper")
_AUDIT = (*_BROKER, "registry", "store")


def health(ask: Ask) -> Page:
    """Completeness: topics by windows."""
    audit, registry, loads = (
        ask.sources.audit.latest,
        ask.sources.subjects.latest,
        ask.sources.loads.latest,
    )
    tier = ask.text("tier", _TIER)
    if audit.value is not None and not ask.text("tier") and tier not in audit.value.health:
        tier = min(audit.value.health, default=tier)
    view = health_page(
        audit.value,
        registry.value,
        loads.value,
        ask.sight,
        ask.wanted(),
        tier=tier,
        now_ms=_now_ms(),
    )
    states = (audit.state, registry.state, loads.state)
    # The newest windows only; the command would sum all there ever were.
    since = ("--since", iso(view.windows[0])) if view.windows else ()
    command = headworks(ask.sources, "audit", "status", "--tier", tier, *since, at=_AUDIT)
    return Page("health.html", "Health", view, command, states, live=True)


def audits(ask: Ask) -> Page:
    """The audit of all topics, in sums."""
    return replace(health(ask), template="audits.html", title="Audit")


def audit(ask: Ask) -> Page:
    """The audit of one topic."""
    topic = ask.name("topic")
    found = ask.sources.audits.topic(topic) if ask.sight.topic(topic) else None
    if found is None or not found.windows:
        raise NotThereError(
            f"nobody has counted messages of a topic {topic!r}",
            fix="headworks audit run keeps the counts; producers of the SDK send them",
        )
    view = audit_page(found, _now_ms())
    state = ask.sources.audit.latest.state
    tiers = [one.tier for one in found.tiers]
    tier = _TIER if _TIER in tiers or not tiers else tiers[0]
    since = iso(min(found.windows))  # the newest windows, like the page
    words = ("audit", "status", "--tier", tier, "--topic", topic, "--since", since)
    command = headworks(ask.sources, *words, at=_AUDIT)
    return Page("audit.html", f"Audit of {topic}", view, command, (state,), live=True)


def window(ask: Ask) -> Page:
    """One window of a topic's audit."""
    topic, start = ask.name("topic"), ask.path_number("start")
    found = ask.sources.audits.explain(topic, start) if ask.sight.topic(topic) else None
    if found is None or not (found.states or found.contributions):
        raise NotThereError(f"nobody has counted messages of {topic!r} in that window")
    view = window_page(found, _now_ms())
    command = headworks(ask.sources, "audit", "explain", names=(topic, iso(start)), at=_AUDIT)
    return Page("window.html", f"{topic} {iso(start)}", view, command)


def groups(ask: Ask) -> Page:
    """The consumer groups."""
    found = ask.sources.groups.latest
    view = group_list(found.value, ask.sight, ask.wanted())
    command = headworks(ask.sources, "group", "list", "--lag", at=_BROKER)
    return Page("groups.html", "Consumer groups", view, command, (found.state,), live=True)


def group(ask: Ask) -> Page:
    """One consumer group."""
    name = ask.name("group")
    found = ask.sources.groups.latest
    view = group_page(found.value, name, ask.sight)
    if view is None:
        raise NotThereError(f"there is no group {name!r}", fix="headworks group list")
    command = headworks(ask.sources, "group", "describe", names=(name,), at=_BROKER)
    return Page("group.html", name, view, command, (found.state,), live=True)


def topics(ask: Ask) -> Page:
    """The list of topics."""
    broker, registry, loads = (
        ask.sources.topics.latest,
        ask.sources.subjects.latest,
        ask.sources.loads.latest,
    )
    view = topic_list(broker.value, registry.value, loads.value, ask.sight, ask.wanted())
    states = (broker.state, registry.state, loads.state)
    command = headworks(ask.sources, "topic", "list", at=("bootstrap",))
    return Page("topics.html", "Topics", view, command, states, live=True)


def messages(ask: Ask) -> Page:
    """Messages of a topic."""
    topic = ask.name("topic")
    governed = _topic(ask, topic)
    seek = Seek(
        ask.optional_number("partition", most=10**6),
        ask.optional_number("offset"),
        read_time(ask.text("time")),
        read_cursor(ask.text("from")),
        ask.number("limit", 25, least=1, most=MOST),
    )
    view = message_list(
        ask.sources.messages,
        governed,
        seek,
        Filter(ask.text("field"), ask.text("value")),
        fields=_fields(ask, governed.subject),
        readers=topic_readers(
            topic, _readers(ask, topic), ask.sources.groups.latest.value, ask.sight
        ),
    )
    states = (
        ask.sources.topics.latest.state,
        ask.sources.subjects.latest.state,
        ask.sources.groups.latest.state,
    )
    return Page("messages.html", topic, view, curl(ask.request), states, live=view.newest_first)


def message(ask: Ask) -> Page:
    """One message."""
    topic = ask.name("topic")
    governed = _topic(ask, topic)
    partition, offset = ask.path_number("partition"), ask.path_number("offset")
    view = one_message(ask.sources.messages, governed, partition, offset)
    if view is None:
        raise NotThereError(
            f"{topic} has no message at partition {partition}, offset {offset}",
            fix="it was not written yet, or retention has removed it",
        )
    return Page("message.html", f"{topic} {partition}:{offset}", view, curl(ask.request))


def schemas(ask: Ask) -> Page:
    """The list of subjects."""
    registry = ask.sources.subjects.latest
    view = subject_list(registry.value, ask.sight, ask.wanted())
    command = headworks(ask.sources, "schema", "list", at=("registry",))
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
            one.version: client.schema_text(one.id, subject) if one.references else one.text
            for one in history
        },
        client.compatibility(subject),
        version=shown,
        before=before,
        consumers=_readers(ask, topic_of(subject)),
        producers=_producers(ask, topic_of(subject)),
    )
    names = tuple(f"{subject}:{one}" for one in (before, shown) if one is not None)
    verb = "show" if before is None else "diff"
    command = headworks(ask.sources, "schema", verb, names=names, at=("registry",))
    states = (
        ask.sources.subjects.latest.state,
        ask.sources.groups.latest.state,
        ask.sources.audit.latest.state,
    )
    return Page("schema.html", subject, view, command, states)


def trying(ask: Ask) -> Page:
    """Try a change: the form, and the verdict on what was sent with it."""
    from headworks._console.views.try_schema import (  # the gate: not for the first page
        Trial,
        try_change,
    )

    client = ask.sources.registry
    subject = ask.sent("subject") or None
    if subject is not None and not ask.sight.subject(subject):
        raise NotThereError(f"there is no subject {subject!r}")
    latest = client.latest(subject) if subject is not None else None
    text = ask.sent("schema")
    if len(text) > _LONGEST_SCHEMA:
        raise UsageError(f"the schema is longer than {_LONGEST_SCHEMA:,} characters")
    if not text.strip():
        start = "" if latest is None else latest.text
        view = Trial(start, subject, None)
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
    command = gate_command(ask.sources)
    return Page("try.html", "Try a change", view, command, (ask.sources.subjects.latest.state,))


def loads(ask: Ask) -> Page:
    """Loads and tables."""
    found = ask.sources.loads.latest
    view = load_list(found.value, ask.sight, ask.wanted())
    at = ("warehouse", *_BROKER)
    command = headworks(ask.sources, "load", "status", at=at)
    return Page("loads.html", "Loads and tables", view, command, (found.state,), live=True)


def run(ask: Ask) -> Page:
    """One load."""
    number = ask.path_number("number")
    found = ask.sources.loads.latest
    view = run_page(ask.sources.places.warehouse, found.value, number, ask.sight)
    if view is None:
        raise NotThereError(f"there is no load {number}")
    return Page("run.html", f"Load {number}", view, curl(ask.request), (found.state,))


def table(ask: Ask) -> Page:
    """The table of a topic."""
    topic = ask.name("topic")
    found = ask.sources.loads.latest
    view = None
    if ask.sight.topic(topic):
        view = table_page(ask.sources.places.warehouse, found.value, topic)
    if view is None:
        raise NotThereError(f"there is no table of a topic {topic!r}", fix="headworks load run")
    ask_for = f"DESCRIBE {view.table.table}"
    command = headworks(ask.sources, "sql", ask_for, at=("data-dir",))
    return Page("table.html", f"Table {view.table.table}", view, command, (found.state,))


def _topic(ask: Ask, topic: str) -> Governed:
    """A topic and its subjects. Without the registry nothing is known of what must be masked."""
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
    keys = registry.value.rows.get(key_subject_of(topic))
    return Governed(row, registry.value.of_topic(topic), keys.version if keys else None)


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
    known = ask.sources.groups.latest.value
    names = known.by_topic.get(topic, ()) if known else ()
    seen = [name for name in names if ask.sight.group(name)]
    return readers_of(topic, ask.sources.governance, seen)


def _producers(ask: Ask, topic: str | None) -> list[str]:
    """The applications that counted into a topic's newest window."""
    known = ask.sources.audit.latest.value
    if topic is None or known is None or not (known.kept and ask.sight.topic(topic)):
        return []
    try:
        return ask.sources.audits.producers(topic)
    except UnreachableError:  # said by the state of the audit, beside what is known without it
        return []


def _now_ms() -> int:
    return round(time.time() * 1000)


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
    "/": health,
    "/home": health,
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
    "/try": trying,
    "/loads": loads,
    "/loads/{number}/topics": run,
    "/tables/{topic}/columns": table,
}
# Screens that take a form, which may be too long for an address.
WITH_FORM: Final = frozenset({"/try"})
