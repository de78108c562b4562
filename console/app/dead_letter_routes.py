"""The page of a topic's dead letters: the one page that changes something outside of the console.

Rules:

- Only a principal that may read and write the topic can redrive. A console without users refuses
  it to everyone, because it does not know who asks.
- A redrive is answered with a redirection, so that a reload of its result sends nothing again.
- Every redrive is recorded in the log before it runs: who, from where, which letters, and to whom.
"""

from __future__ import annotations

import logging

from consumer_sdk._dead_letters.redrive import RedriveReport
from headworks._console.app.commands import headworks
from headworks._console.app.formatting import segment
from headworks._console.app.page import Page
from headworks._console.app.request import ActionForbiddenError, PageNotFoundError, PageRequest
from headworks._console.sources.dead_letters import MAX_SENT, LetterCounts
from headworks._console.views.dead_letters import DeadLetterPage, RedriveResult, letter_rows
from headworks._kafka.dead_letters import DEAD_LETTER_SUFFIX
from headworks.errors import UnreachableError, UsageError

_LOG = logging.getLogger("headworks.console.redriven")


def dead_letters(request: PageRequest) -> Page:
    """Show the dead letters of a topic, after a redrive if a form asks for one."""
    topic = request.name("topic")
    source = f"{topic}{DEAD_LETTER_SUFFIX}"
    broker = request.sources.topics.latest
    if broker.value is None:
        raise UnreachableError(broker.state.problem or "the broker has not been read yet")
    if topic not in broker.value.rows or not request.visibility.topic(topic):
        raise PageNotFoundError(f"there is no topic {topic!r}", fix="headworks topic list")
    desk, location = request.sources.dead_letters, None
    if request.http.method == "POST":
        report = _redrive(request, topic)
        result: RedriveResult | None = _result(report)
        location = f"/topics/{segment(topic)}/dead-letters?redriven={desk.keep(topic, report)}"
    else:
        kept = desk.kept(topic, request.text("redriven"))
        result = None if kept is None else _result(kept)
    counts = LetterCounts((), whole=True)
    if source in broker.value.rows:
        counts = desk.count(topic)
    rows, hidden = letter_rows(counts, request.visibility)
    writes = request.visibility.may_redrive(topic)
    view = DeadLetterPage(topic, source, rows, counts.whole, hidden, writes, MAX_SENT, result)
    command = headworks(request.sources, "dead-letter", "list", names=(topic,), at=("bootstrap",))
    title = f"Dead letters of {topic}"
    return Page("dead_letters.html", title, view, command, (broker.state,), location=location)


def _result(report: RedriveReport) -> RedriveResult:
    return RedriveResult(tuple(sorted(report.sent.items())), tuple(sorted(report.left.items())))


def _redrive(request: PageRequest, topic: str) -> RedriveReport:
    """Redrive the letters that the form names. Raises ActionForbiddenError."""
    visibility, form = request.visibility, request.form
    if not visibility.may_redrive(topic):
        raise ActionForbiddenError(
            f"you may not redrive dead letters of {topic}: that needs a user who may read and"
            " write the topic",
            fix="ask whoever keeps the file of grants, or use `headworks dead-letter redrive`",
        )
    group, exception, target = (form.get(name, "") for name in ("group", "exception", "to"))
    if not exception or target not in ("topic", "group") or form.get("sure") != "yes":
        raise UsageError("the form names no letters", fix="use the form of the page")
    if group and not visibility.group(group):
        raise PageNotFoundError(f"there is no group {group!r}", fix="headworks group list")
    if not group and target == "group":
        raise UsageError("these letters have no group", fix="send them to the topic")
    fields = {
        "principal": visibility.name or "anonymous",
        "peer": request.http.client.host if request.http.client else "unknown",
        "topic": topic,
        "group": group,
        "exception": exception,
        "to": group if target == "group" else topic,
    }
    _LOG.info(
        "%(principal)s@%(peer)s redrives dead letters of %(topic)r, group %(group)r, exception"
        " %(exception)r, to %(to)r",
        fields,
        extra=fields,
    )
    desk = request.sources.dead_letters
    return desk.redrive(topic, group, exception, to_group=target == "group")
