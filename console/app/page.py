"""A page: one view, shown as HTML or, under the same path with `.json`, as JSON.

Rules:

- Both forms show the same view, so masking applies to both. Templates escape everything. The JSON
  includes the state of the page's sources.
- The renewal of a live page is its content alone, and nothing (304) if that has not changed. The
  ages of the sources always change: a 304 has them in the header `x-source-ages`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from headworks._audit.states import ARRIVED, DEFINITIONS
from headworks._console.app import formatting
from headworks._console.app.csv_table import CsvTable
from headworks._console.sources.poller import SourceState
from headworks._console.views.message_columns import column_text

_TEMPLATES = Path(__file__).parent.parent / "templates"
# Characters of markup: a browser must find none, even if it reads the JSON as HTML.
_ESCAPED = {ord(one): f"\\u{ord(one):04x}" for one in "<>&\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class Page:
    """A route's result: a view, its template, and the frame around it.

    `command` gives the same answer in a terminal. `live` pages reload their content. `table` is
    the page as CSV, if it has that form. `location` is where a browser shows the result of a form.
    """

    template: str
    title: str
    view: Any
    command: str
    sources: Sequence[SourceState] = ()
    live: bool = False
    status: int = 200
    table: CsvTable | None = None
    location: str | None = None

    @property
    def unread(self) -> bool:
        """Return whether a source has not been read for the first time yet."""
        return any(one.age_seconds is None and one.problem is None for one in self.sources)


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(formatting.FILTERS)
    made.filters["column"] = column_text
    made.globals["definitions"] = DEFINITIONS
    made.globals["arrived"] = ARRIVED
    return made


_JINJA = _environment()


def respond(request: Request, page: Page) -> Response:
    """Return the page in the format that the path asks for."""
    if request.url.path.endswith(".json"):
        body = json.dumps(
            {
                "title": page.title,
                "command": page.command,
                "sources": as_json(page.sources),
                "data": as_json(page.view),
            },
            ensure_ascii=False,
            indent=1,
            default=str,
        ).translate(_ESCAPED)
        return Response(body, page.status, media_type="application/json")
    if page.location is not None:
        return Response(None, 303, {"location": page.location})
    if request.url.path.endswith(".csv") and page.table is not None:
        return Response(page.table.text(), media_type="text/csv; charset=utf-8")
    if page.live and request.headers.get("hx-request") == "true":
        return _renewal(request, page)
    return Response(_html(request, page, "base.html"), page.status, media_type="text/html")


def _renewal(request: Request, page: Page) -> Response:
    """Return the live part of a page, or 304 if the reader has it already."""
    html = _html(request, page, "live.html")
    levels = " ".join(formatting.source_level(one) for one in page.sources)
    content = html.replace(_ages(page), levels)
    tag = f'"{hashlib.sha256(content.encode()).hexdigest()[:24]}"'
    headers = {"etag": tag, "x-source-ages": "; ".join(map(formatting.source_age, page.sources))}
    if request.headers.get("if-none-match") == tag:
        return Response(None, 304, headers)
    return Response(html, page.status, headers, media_type="text/html")


def _ages(page: Page) -> Markup:
    parts = _JINJA.get_template("parts.html").module
    return Markup(parts.ages(page.sources))  # type: ignore[attr-defined]  # a macro


def _html(request: Request, page: Page, frame: str) -> str:
    return _JINJA.get_template(page.template).render(
        frame=frame,
        page=page,
        ages=_ages(page),
        view=page.view,
        path=request.url.path,
        here=_with_query(request.url.path, request.url.query),
        json_here=_with_query(_json_path(request.url.path), request.url.query),
        csv_here=_with_query(f"{request.url.path}.csv", request.url.query),
        who=request.state.visibility.name,
        section=request.url.path.split("/")[1],
    )


def as_json(value: Any) -> Any:
    """Return a view as JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value


def _json_path(path: str) -> str:
    return "/home.json" if path == "/" else f"{path}.json"


def _with_query(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path
