"""The record of who looked at which messages: one line of the log for each page of messages.

Rules:

- A line names the principal, its address, the topic, and the offsets that the page showed. It never
  has a value, a key, or the text of a filter, which may be what somebody wants to protect.
- A page that renews itself is recorded once an hour, and any other request each time.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import groupby

from starlette.requests import Request

from headworks._console.sources.shown_message import ShownMessage

_LOG = logging.getLogger("headworks.console.viewed")
_RENEWAL_SECONDS = 3600.0
_MAX_PAGES = 10_000
_Page = tuple[str, str, str]  # principal, peer, and address of the page


class ViewLog:
    """Records pages of messages; `clock` gives seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recorded: OrderedDict[_Page, float] = OrderedDict()  # when, oldest first

    def note(
        self, request: Request, topic: str, rows: Sequence[ShownMessage], *, filtered: bool
    ) -> None:
        """Record that the sender of a request sees these messages of a topic."""
        principal = request.state.visibility.name or "anonymous"
        peer = request.client.host if request.client else "unknown"
        page = principal, peer, f"{request.url.path}?{request.url.query}"
        renewal, now = request.headers.get("hx-request") == "true", self._clock()
        if renewal and now - self._recorded.get(page, -_RENEWAL_SECONDS) < _RENEWAL_SECONDS:
            return
        self._recorded.pop(page, None)
        self._recorded[page] = now
        if len(self._recorded) > _MAX_PAGES:
            self._recorded.popitem(last=False)
        fields = {
            "principal": principal,
            "peer": peer,
            "topic": topic,
            "messages": len(rows),
            "offsets": offsets_text(rows),
            "filtered": filtered,
        }
        _LOG.info(
            "%(principal)s@%(peer)s looked at %(messages)d messages of %(topic)r: %(offsets)s",
            fields,
            extra=fields,
        )


def offsets_text(rows: Sequence[ShownMessage]) -> str:
    """Return the first and last offset of each partition, like `0:12-36 1:4-4`."""
    places = sorted((row.partition, row.offset) for row in rows)
    found = []
    for partition, some in groupby(places, lambda place: place[0]):
        offsets = [offset for _, offset in some]
        found.append(f"{partition}:{offsets[0]}-{offsets[-1]}")
    return " ".join(found) or "none"
