"""The pages of loads and tables. No route changes anything."""

from __future__ import annotations

from collections.abc import Mapping

from headworks._console.app.commands import curl, headworks
from headworks._console.app.page import Page
from headworks._console.app.request import PageNotFoundError, PageRequest
from headworks._console.sources.quarantine import read_quarantine
from headworks._console.views.loads import load_list, run_page, table_page
from headworks._console.views.quarantine import quarantine_page
from headworks.errors import UnreachableError
from headworks.schema import key_subject_of

# Where the commands of a page ask, unless it is where they do anyway.
_LOADS = ("warehouse", "bootstrap", "zookeeper")


def loads(request: PageRequest) -> Page:
    """Show loads and tables."""
    found = request.sources.loads.latest
    view = load_list(found.value, _lags(request), request.visibility, request.list_query())
    command = headworks(request.sources, "load", "status", at=_LOADS)
    return Page("loads.html", "Loads and tables", view, command, (found.state,), live=True)


def run(request: PageRequest) -> Page:
    """Show one load."""
    number = request.path_number("number")
    found = request.sources.loads.latest
    view = run_page(request.sources.endpoints.warehouse, found.value, number, request.visibility)
    if view is None:
        raise PageNotFoundError(f"there is no load {number}")
    return Page("run.html", f"Load {number}", view, curl(request.http), (found.state,))


def quarantine(request: PageRequest) -> Page:
    """Show the messages in quarantine: why, where, and how to load them again."""
    sources = request.sources
    known = sources.subjects.latest
    if known.value is None:
        raise UnreachableError(
            known.state.problem or "the registry has not been read yet",
            fix="reasons are shown when it is known what must be masked",
        )
    subjects = known.value

    def masked(topic: str) -> bool:
        values, keys = subjects.of_topic(topic), subjects.rows.get(key_subject_of(topic))
        versions = values.version if values else None, keys.version if keys else None
        return sources.messages.has_masked_fields(topic, *versions)

    def requeue(topic: str) -> str:
        return headworks(sources, "load", "requeue", names=(topic,), at=("warehouse",))

    found = read_quarantine(sources.endpoints.warehouse, request.visibility.topic)
    view = quarantine_page(found, request.list_query(), masked=masked, requeue=requeue)
    state = sources.loads.latest.state
    return Page("quarantine.html", "Quarantine", view, curl(request.http), (state, known.state))


def table(request: PageRequest) -> Page:
    """Show the table of a topic."""
    topic = request.name("topic")
    found = request.sources.loads.latest
    view = None
    if request.visibility.topic(topic):
        lag = _lags(request).get(topic)
        view = table_page(request.sources.endpoints.warehouse, found.value, topic, lag)
    if view is None:
        raise PageNotFoundError(f"there is no table of a topic {topic!r}", fix="headworks load run")
    ask_for = f"DESCRIBE {view.table.table}"
    command = headworks(request.sources, "sql", ask_for, at=("data-dir",))
    return Page("table.html", f"Table {view.table.table}", view, command, (found.state,))


def _lags(request: PageRequest) -> Mapping[str, int]:
    """Return the messages of each topic that are not loaded, as the reconciler knows them."""
    known = request.sources.audit.latest.value
    return known.loader_lags if known else {}
