"""The parameters of paths and queries, as the clients of the interface write them.

Rules: paths arrive percent-encoded (see `middleware`), and names are decoded here, once. A flag is
true if it reads "true" in any case, and false otherwise, as in Java.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar
from urllib.parse import unquote

from fastapi import Depends, Path, Query, Request
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BeforeValidator

from headworks._registry.model import refusals
from headworks._registry.operations.reader import LATEST
from headworks._registry.operations.response_bodies import ResponseFormat
from headworks._registry.operations.version_listing import VersionFilter
from headworks._subject import DEFAULT_CONTEXT

MAX_INT = 2**31 - 1
# Scope key: a subject without a context is in the default context only.
CONFINED = "headworks.confined"
Item = TypeVar("Item")


def answer(content: object, status: int = 200) -> JSONResponse:
    """Return a JSON response without validating its content again."""
    return JSONResponse(content, status)


def decoded(encoded: str) -> str:
    """Return a name from a path; ServiceError 42208 if it is not UTF-8 or contains a NUL."""
    try:
        name = unquote(encoded, errors="strict")
    except UnicodeDecodeError:
        raise refusals.invalid_subject(encoded, "it is not UTF-8") from None
    return _without_nul(name)


def _without_nul(name: str) -> str:
    if "\0" in name:
        raise refusals.invalid_subject(repr(name), "control characters are not allowed")
    return name


async def subject_name(request: Request, subject: Annotated[str, Path()]) -> str:
    """Return the decoded subject; one without a context is in the default one if confined."""
    name = decoded(subject)
    if request.scope.get(CONFINED) and not name.startswith((":.", ":*")):
        return f":{DEFAULT_CONTEXT}:{name}"
    return name


async def _context(context: Annotated[str, Path()]) -> str:
    return decoded(context)


async def _subject_hint(
    subject: Annotated[str, Query(description="the subject that the request is about")] = "",
) -> str:
    return _without_nul(subject)


def read_version_name(version: str) -> int | str:
    """Return LATEST (also written -1) or a number up to 2^31-1; ServiceError 42202 for others."""
    if version in (LATEST, "-1"):
        return LATEST
    if version.isascii() and version.isdigit() and 0 < len(version) <= 10:
        number = int(version)
        if 0 < number <= MAX_INT:
            return number
    raise refusals.invalid_version(decoded(version))


async def _version_name(version: Annotated[str, Path()]) -> int | str:
    return read_version_name(version)


async def _old_version(old: Annotated[str, Path()]) -> int | str:
    return read_version_name(old)


async def _new_version(new: Annotated[str, Path()]) -> int | str:
    return read_version_name(new)


async def _schema_id(schema_id: Annotated[str, Path()]) -> int:
    digits = schema_id.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 10:
        number = int(schema_id)
        if 0 <= number <= MAX_INT:
            return number
    raise refusals.no_schema(f"Schema {decoded(schema_id)}")


async def author(request: Request) -> str:
    """Return the author for the audit log: the authenticated name, and the address."""
    name = request.scope.get("headworks.principal", "anonymous")
    return f"{name}@{request.client.host if request.client else 'unknown'}"


def is_true(value: object) -> bool:
    """Return whether a flag is set."""
    return str(value).lower() == "true"


Flag = Annotated[bool, BeforeValidator(is_true)]
Prefix = Annotated[str, AfterValidator(_without_nul), Query(alias="subjectPrefix")]
SubjectName = Annotated[str, Depends(subject_name)]
SubjectHint = Annotated[str, Depends(_subject_hint)]
VersionName = Annotated[int | str, Depends(_version_name)]
OldVersion = Annotated[int | str, Depends(_old_version)]
NewVersion = Annotated[int | str, Depends(_new_version)]
SchemaId = Annotated[int, Depends(_schema_id)]
Context = Annotated[str, Depends(_context)]
Author = Annotated[str, Depends(author)]


async def _version_filter(
    deleted: Annotated[Flag, Query()] = False,
    deleted_only: Annotated[Flag, Query(alias="deletedOnly")] = False,
) -> VersionFilter:
    return VersionFilter(deleted, deleted_only)


async def _page(
    offset: Annotated[int, Query()] = 0,
    limit: Annotated[int, Query(description="0 and below: all")] = -1,
) -> tuple[int, int]:
    return max(0, offset), limit


async def response_format(
    form: Annotated[
        str, Query(alias="format", description="`resolved` writes references out in the text")
    ] = "",
    references: Annotated[
        str,
        Query(
            alias="referenceFormat",
            description="`qualified` names the subjects of references with their context",
        ),
    ] = "",
    tags: Annotated[
        list[str] | None,
        Query(alias="findTags", description="tags to list in `schemaTags`; `*` for all"),
    ] = None,
) -> ResponseFormat:
    """Return the form in which a response has its schema."""
    return ResponseFormat(form, references, tuple(tags or ()))


ResponseFormatOf = Annotated[ResponseFormat, Depends(response_format)]
VersionFilterOf = Annotated[VersionFilter, Depends(_version_filter)]
Page = Annotated[tuple[int, int], Depends(_page)]


def page_of(items: Sequence[Item], page: tuple[int, int]) -> list[Item]:
    """Return the items from `offset` on, at most `limit` of them (0 or less: all)."""
    offset, limit = page
    return list(items[offset:] if limit <= 0 else items[offset : offset + limit])
