"""The page of the search over everything."""

from __future__ import annotations

from headworks._console.app.commands import curl
from headworks._console.app.page import Page
from headworks._console.app.request import PageRequest
from headworks._console.views.search import Searched, search
from headworks.errors import UsageError

_MAX_CHARACTERS = 200


def search_everything(request: PageRequest) -> Page:
    """Show the topics, schemas, fields, owners, groups, and tables that match."""
    q = request.text("q")
    if len(q) > _MAX_CHARACTERS:
        raise UsageError(f"a search has at most {_MAX_CHARACTERS} characters")
    sources = request.sources
    topics, subjects = sources.topics.latest, sources.subjects.latest
    groups, loads = sources.groups.latest, sources.loads.latest
    every = Searched(topics.value, subjects.value, groups.value, loads.value)
    states = (topics.state, subjects.state, groups.state, loads.state)
    view = search(every, request.visibility, q)
    return Page("search.html", "Search", view, curl(request.http), states, live=not view.read)
