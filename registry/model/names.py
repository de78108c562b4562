"""Which names a subject may have. Every name that a request brings in to be kept passes here."""

from __future__ import annotations

import re

from headworks._registry.model import refusals
from headworks._subject import ANY_CONTEXT, GLOBAL_CONTEXT, Subject

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_RESERVED = ("__GLOBAL", "__EMPTY")


def valid_subject(text: str) -> Subject:
    """Read the name of a subject that may be created; ServiceError 42208 if it may not."""
    subject = Subject.parse(text)
    if _CONTROL.search(text):
        raise refusals.invalid_subject(text, "control characters are not allowed")
    if _SURROGATE.search(text):
        raise refusals.invalid_subject(text, "it is not Unicode text")
    if subject.name in _RESERVED:
        raise refusals.invalid_subject(text, "the name is reserved")
    if not subject.name:
        raise refusals.invalid_subject(text, "the name is empty")
    if subject.context == GLOBAL_CONTEXT:
        raise refusals.invalid_subject(text, "its context holds settings only")
    if subject.name.startswith((":.", ":*")):
        # Written without its context, it would be read as a name in another one.
        raise refusals.invalid_subject(text, "its name begins like that of a context")
    if subject.context in ("", ANY_CONTEXT):
        raise refusals.invalid_subject(text, "it names no single context")
    return subject
