"""The usage of subjects, as a console answers it.

Rules: the console is asked only if it was named, and then it must answer, because a verdict without
the usage that somebody asked for would be another one. Its answer is read as values, and believed.
"""

from __future__ import annotations

from urllib.parse import quote

from headworks._audit.usage import SubjectUsage
from headworks._ci.usage import AskUsage
from headworks.errors import HeadworksError, RefusedError, UnreachableError
from headworks.registry_client._transport import HttpTransport

_TIMEOUT_SECONDS = 30.0
_NOT_FOUND = 404


def console_usage(url: str) -> AskUsage:
    """Return a function that asks the console at `url`, with the settings' user and password.

    It raises UnreachableError if the console does not answer, and RefusedError if it refuses.
    """
    transport = HttpTransport(url, timeout=_TIMEOUT_SECONDS, attempts=2)

    def ask(subject: str) -> SubjectUsage | None:
        path = f"/schemas/{quote(subject, safe='')}/usage.json"
        try:
            status, answer = transport.request("GET", path)
        except HeadworksError as error:
            reason = error.message.rpartition(": ")[2]
            raise UnreachableError(
                f"no console answers at {transport.url}: {reason}",
                fix="start it with `headworks console start`, or correct --usage",
            ) from None
        if status == _NOT_FOUND:
            return None
        if status != 200:
            raise RefusedError(
                f"the console at {transport.url} refused to give the usage of {subject}",
                status=status,
                fix="set username and password of a user who may read the subject and its topic",
            )
        try:
            return SubjectUsage.from_dict(answer["data"])
        except (KeyError, TypeError, ValueError) as error:
            raise RefusedError(
                f"the answer of {transport.url} is no usage of a subject: {error!r}",
                status=status,
                fix="name a console of this release with --usage",
            ) from None

    return ask
