"""RegistryClient: register, look up, and read schemas, levels, and findings.

Rules:

- A schema by id never changes, so each client requests it once and keeps it. Nothing else is
  cached, because versions, levels, and subjects may change.
- For a missing subject, methods return None or an empty list; it is not an error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TypeVar
from urllib.parse import quote

from headworks.compatibility import Finding, Level, Policy
from headworks.errors import RefusedError
from headworks.registry_client import _answers, _listing
from headworks.registry_client._answers import (
    SCHEMA_NOT_FOUND,
    SUBJECT_NOT_FOUND,
    VERSION_NOT_FOUND,
    Compatibility,
    JsonBody,
    Reference,
    Registered,
    SubjectVersion,
    as_json,
    reading,
    subject_version,
    subject_versions,
)
from headworks.registry_client._credentials import Token
from headworks.registry_client._transport import HttpTransport

_NO_CONFIG = 40408
_INVALID_SCHEMA = 42201
_IMPORT = "IMPORT"
_Value = TypeVar("_Value")


class RegistryClient:
    """A schema registry at `url`; safe to share between threads and across a fork.

    `url` may list several registries on one store, with commas: the others are asked if one fails.

    The credentials are `username` and `password`, or a `token` (or a function that returns one), or
    those in `url`, or the settings `username` and `password`. The CA certificates in `tls_ca`, or
    in the setting of that name, verify an https registry.

    Every method raises UnreachableError if no attempt gets a response within `timeout` seconds. It
    raises RefusedError, with the registry's status and code, if the registry refuses.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        token: Token | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        timeout: float = 5.0,
        attempts: int = 4,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport = HttpTransport(
            url,
            timeout=timeout,
            attempts=attempts,
            sleep=sleep,
            username=username,
            password=password,
            token=token,
            tls_ca=tls_ca,
        )
        # Texts by context and id. Only ids that the registry has are kept, so it is bounded.
        self._texts: dict[tuple[str, int], str] = {}

    @property
    def url(self) -> str:
        """The registry's address, or several with commas, without credentials."""
        return self._transport.url

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of the registries, without credentials."""
        return self._transport.urls

    def schema_text(self, schema_id: int, subject: str = "") -> str:
        """Return the text of a schema, with its references inlined.

        Ids belong to a context. For another context than the default one, name a `subject` of it.
        """
        context = _context_of(subject)
        text = self._texts.get((context, schema_id))
        if text is None:
            path = f"/schemas/ids/{schema_id}"
            read, of = _answers.schema_text, f"subject={_quoted(subject)}" if context else ""
            found, refers = self._read(read, "GET", f"{path}?{of}".rstrip("?"))
            if refers:
                found, _ = self._read(read, "GET", f"{path}?format=resolved&{of}".rstrip("&"))
            text = self._texts.setdefault((context, schema_id), found)
        return text

    def register(
        self, subject: str, text: str, *, references: Sequence[Reference] = ()
    ) -> Registered:
        """Register a schema in `subject`, unless it is registered; return its id and version.

        Raises IncompatibleSchemaError, with its findings, if it would break a reader.
        """
        body = _schema_body(text, references)
        found = self.ask("POST", f"/subjects/{_quoted(subject)}/versions", body)
        with reading(self.url):
            if "version" in found:
                return _answers.registered(found)
        # Registries before Confluent 8 return the id alone.
        again = self.lookup(subject, text, references=references)
        if again is None:
            raise RefusedError(
                f"{self.url} does not find the schema just registered in {subject}",
                status=404,
                code=SCHEMA_NOT_FOUND,
            )
        return again

    def lookup(
        self, subject: str, text: str, *, references: Sequence[Reference] = ()
    ) -> Registered | None:
        """Return the id and version of a schema in `subject`, or None if it is not registered."""
        body = _schema_body(text, references)
        return self._read_optional(
            _answers.registered, "POST", f"/subjects/{_quoted(subject)}", body
        )

    def latest(self, subject: str) -> SubjectVersion | None:
        """Return the latest version of `subject`, or None if there is no such subject."""
        path = f"/subjects/{_quoted(subject)}/versions/latest"
        return self._read_optional(subject_version, "GET", path)

    def version(self, subject: str, number: int, *, deleted: bool = False) -> SubjectVersion:
        """Return version `number` of `subject`; RefusedError (40401, 40402) if there is none.

        With `deleted`, also a soft-deleted one.
        """
        path = f"/subjects/{_quoted(subject)}/versions/{number}"
        return self._read(subject_version, "GET", f"{path}?deleted=true" if deleted else path)

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the live version numbers, ascending; empty if there is no such subject.

        With `deleted`, also those of soft-deleted versions.
        """
        path = f"/subjects/{_quoted(subject)}/versions"
        path = f"{path}?deleted=true" if deleted else path
        return self._read_optional(_answers.numbers, "GET", path) or []

    def version_numbers(
        self, prefix: str = "", *, deleted: bool = False
    ) -> dict[str, list[int]] | None:
        """Return the numbers of the live versions of all subjects with a prefix, by subject.

        With `deleted`, also those of soft-deleted versions. The answer is None from a registry that
        cannot list them, such as Confluent's: it ignores the question and gives names.
        """
        query = f"subjectPrefix={_quoted(prefix)}&versions=true"
        path = f"/subjects?{query}{'&deleted=true' if deleted else ''}"
        return self._read(_answers.numbers_by_subject, "GET", path)

    def version_of(self, schema_id: int, subject: str) -> int | None:
        """Return the version of `subject` with a schema, even a soft-deleted one, or None."""
        return max((n for name, n in self.uses(schema_id) if name == subject), default=None)

    def uses(self, schema_id: int) -> list[tuple[str, int]]:
        """Return the (subject, version) pairs that have a schema, soft-deleted ones too."""
        path = f"/schemas/ids/{schema_id}/versions?deleted=true"
        return self._read_optional(_answers.places, "GET", path) or []

    def import_version(self, version: SubjectVersion) -> None:
        """Register a version of another registry with its id and its number.

        The subject is set to mode IMPORT and stays in it, because the other registry owns it.
        Raises RefusedError if the id or the number has other content here.
        """
        subject = _quoted(version.subject)
        if self.mode(version.subject) != _IMPORT:
            self.ask("PUT", f"/mode/{subject}?force=true", {"mode": _IMPORT})
        body = _schema_body(version.text, version.references)
        numbers = {"id": version.id, "version": version.version}
        self.ask("POST", f"/subjects/{subject}/versions", {**body, **numbers})

    def history(self, subject: str) -> list[SubjectVersion]:
        """Return every live version of `subject`, oldest first."""
        return [self.version(subject, number) for number in self.versions(subject)]

    def list_versions(
        self,
        prefix: str = "",
        *,
        latest_only: bool = False,
        deleted: bool = False,
        aliases: bool = False,
        limit: int | None = None,
        only_listed: bool = False,
    ) -> list[SubjectVersion]:
        """Return the versions of all subjects whose names start with `prefix`, in few requests.

        The prefix `:*:` stands for all contexts; otherwise only the default one is listed. With
        `deleted`, soft-deleted versions are included. With `aliases`, subjects that have an alias
        under the prefix are included. `limit` ends the listing early, with at least that many.

        A registry without such a list is asked for each version, or, with `only_listed`, for none.
        """
        how = {"latest_only": latest_only, "deleted": deleted}
        path = _listing.page_paths(prefix, aliases=aliases, **how)

        def page(first: int) -> list[SubjectVersion]:
            return subject_versions(self._request("GET", path(first)))

        with reading(self.url):
            try:
                found = _listing.read_all(page, self.url, limit=limit)
            except KeyError:  # its versions do not say what they are versions of
                found = []
            if found or only_listed:
                return found
            each = _listing.read_each(self._ask_optional, prefix, limit=limit, **how)
            return [*map(subject_version, each)]

    def list_objects(self, prefix: str, *, deleted: bool = False) -> list[JsonBody]:
        """Return the same as JSON objects with their aliases, as the registry has them."""
        how = {"latest_only": False, "deleted": deleted}
        path = _listing.page_paths(prefix, aliases=True, **how)

        def page(first: int) -> list[JsonBody]:
            return list(as_json(self._request("GET", path(first))))

        with reading(self.url):
            found = _listing.read_all(page, self.url)
            if found and _listing.is_complete(found):
                return found
            return _listing.read_each(self._ask_optional, prefix, limit=None, **how)

    def subjects(self) -> list[str]:
        """Return the names of all live subjects."""
        return self._read(_answers.names, "GET", "/subjects")

    def compatibility(self, subject: str | None = None) -> Compatibility:
        """Return the level and policy in force for `subject` (None: the default of all).

        A registry that states no policy has that of `Policy.default_of`.
        """
        found = None
        if subject is not None:
            found = self._ask_optional("GET", f"/config/{_quoted(subject)}?defaultToGlobal=true")
        if found is None:  # some registries have no settings for a subject without versions
            found = self.ask("GET", "/config")
        with reading(self.url):
            return _answers.compatibility(found, subject or "")

    def mode(self, subject: str) -> str:
        """Return the mode of `subject`: READWRITE, READONLY, READONLY_OVERRIDE, IMPORT, .."""
        return self._read(_answers.mode, "GET", f"/mode/{_quoted(subject)}?defaultToGlobal=true")

    def set_compatibility(
        self, subject: str | None, level: Level | str, policy: Policy | str | None = None
    ) -> None:
        """Set the level and policy of `subject` (None: the default); policy None: keep it."""
        body: dict[str, object] = {"compatibility": Level(level).value}
        if policy is not None:
            body["policy"] = Policy(policy).value
        self.ask("PUT", "/config" if subject is None else f"/config/{_quoted(subject)}", body)

    def deprecated_versions(self, subject: str) -> dict[int, str]:
        """Return the deprecated versions of a subject, each with the reason."""
        try:
            return self._read(_answers.deprecated_versions, "GET", f"/config/{_quoted(subject)}")
        except RefusedError as error:
            if error.code in (_NO_CONFIG, SUBJECT_NOT_FOUND):
                return {}
            raise

    def deprecate(self, subject: str, reasons: Mapping[int, str]) -> None:
        """Set the deprecated versions of a subject, each with its reason."""
        body = {str(number): reason for number, reason in reasons.items()}
        self.ask("PUT", f"/config/{_quoted(subject)}", {"deprecatedVersions": body})

    def check(
        self,
        subject: str,
        text: str,
        version: int | str = "all",
        *,
        references: Sequence[Reference] = (),
    ) -> list[Finding]:
        """Return what would break if `text` were registered in `subject`; empty: nothing.

        `version` is one version ("latest", 3), or "all" for those that the level compares with.
        Raises RefusedError if the schema is invalid or there is no such version.
        """
        path = f"/compatibility/subjects/{_quoted(subject)}/versions"
        if version != "all":
            path += f"/{version}"
        is_compatible, findings, told = self._read(
            _answers.verdict, "POST", f"{path}?verbose=true", _schema_body(text, references)
        )
        if is_compatible:
            return []
        if not findings:
            raise RefusedError(
                f"{self.url} refuses the schema for {subject}: {'; '.join(told)}",
                status=422,
                code=_INVALID_SCHEMA,
            )
        return findings

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> JsonBody:
        """Send a request that has no method of its own; return the JSON of the response.

        `path` starts with "/", and its parts are percent-encoded.
        """
        return as_json(self._request(method, path, body))

    def _read(
        self,
        read: Callable[[JsonBody], _Value],
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
    ) -> _Value:
        """Return what `read` makes of the response."""
        answer = self.ask(method, path, body)
        with reading(self.url):
            return read(answer)

    def _read_optional(
        self,
        read: Callable[[JsonBody], _Value],
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
    ) -> _Value | None:
        """Do the same, or return None for what does not exist."""
        try:
            return self._read(read, method, path, body)
        except RefusedError as error:
            if error.code in (SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND):
                return None
            raise

    def _request(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> JsonBody:
        status, answer = self._transport.request(method, path, body)
        if status >= 300:
            raise _answers.refusal(self.url, status, answer, self._transport.credentials.fix)
        return answer

    def _ask_optional(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> JsonBody | None:
        return self._read_optional(lambda answer: answer, method, path, body)


def _context_of(subject: str) -> str:
    """Return `:.context:` of a subject, or "" for the default context."""
    return subject[: subject.find(":", 1) + 1] if subject.startswith(":.") else ""


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _schema_body(text: str, references: Sequence[Reference]) -> dict[str, object]:
    more = {"references": [asdict(each) for each in references]} if references else {}
    return {"schema": text, **more}
