"""Every refusal the service can answer with: HTTP status, Confluent's error code, a sentence.

Rules:

- One function per refusal, so that a code is written once and its sentence is one sentence.
- A caller's mistake is a 4xx. Clients repeat a 5xx, so only trouble of the store, or too much work,
  may be one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from headworks._subject import Subject
from headworks.compatibility import Finding
from headworks.errors import RefusedError

# The code of an incompatible schema in Confluent 8.2 and later. Earlier versions answer with 409.
INCOMPATIBLE: Final = 40901


class ServiceError(RefusedError):
    """An answer other than 2xx; `extra` are further members of its body."""

    def __init__(
        self, status: int, code: int, message: str, *, extra: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message, status=status, code=code)
        self.extra = dict(extra or {})

    def as_body(self) -> dict[str, object]:
        """The JSON body of the answer."""
        return {"error_code": self.code, "message": self.message, **self.extra}


def bad_request(message: str) -> ServiceError:
    """The request is not one: malformed JSON, for example."""
    return ServiceError(400, 400, message)


def no_subject(subject: Subject) -> ServiceError:
    """The subject does not exist, or has no live version."""
    return ServiceError(404, 40401, f"Subject '{subject}' not found.")


def no_version(version: int | str) -> ServiceError:
    """The subject has no such version."""
    return ServiceError(404, 40402, f"Version {version} not found.")


def no_schema(what: str = "Schema") -> ServiceError:
    """No schema with this id or guid, or not registered in this subject."""
    return ServiceError(404, 40403, f"{what} not found")


def subject_soft_deleted(subject: Subject) -> ServiceError:
    """The subject was soft-deleted already."""
    return ServiceError(
        404,
        40404,
        f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
    )


def subject_not_soft_deleted(subject: Subject) -> ServiceError:
    """A permanent deletion needs a soft one before it."""
    return ServiceError(
        404,
        40405,
        f"Subject '{subject}' was not deleted first before being permanently deleted",
    )


def version_soft_deleted(subject: Subject, version: int) -> ServiceError:
    """The version was soft-deleted already."""
    return ServiceError(
        404,
        40406,
        f"Subject '{subject}' Version {version} was soft deleted. "
        "Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: Subject, version: int) -> ServiceError:
    """A permanent deletion needs a soft one before it."""
    return ServiceError(
        404,
        40407,
        f"Subject '{subject}' Version {version} was not deleted first "
        "before being permanently deleted",
    )


def compatibility_not_configured(subject: Subject) -> ServiceError:
    """The subject has no settings of its own."""
    return ServiceError(
        404,
        40408,
        f"Subject '{subject}' does not have subject-level compatibility configured",
    )


def mode_not_configured(subject: Subject) -> ServiceError:
    """The subject has no mode of its own."""
    return ServiceError(
        404, 40409, f"Subject '{subject}' does not have subject-level mode configured"
    )


def incompatible(
    subject: Subject, messages: Sequence[str], findings: Sequence[Finding]
) -> ServiceError:
    """The schema would break a reader; `findings` is our structured form of the reasons."""
    return ServiceError(
        409,
        INCOMPATIBLE,
        "Schema being registered is incompatible with an earlier schema for subject "
        f'"{subject}", details: [{", ".join(messages)}]',
        extra={"findings": [finding.as_dict() for finding in findings]},
    )


def invalid_schema(message: str) -> ServiceError:
    """The schema, or what it refers to, is not valid."""
    return ServiceError(422, 42201, message)


def invalid_version(version: object) -> ServiceError:
    """Not the name of a version."""
    return ServiceError(
        422,
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are "
        'between [1, 2^31-1] and the string "latest"',
    )


def invalid_level(message: str) -> ServiceError:
    """Not a compatibility level, or not a policy."""
    return ServiceError(422, 42203, message)


def invalid_mode(mode: object) -> ServiceError:
    """Not a mode."""
    return ServiceError(
        422,
        42204,
        f"Invalid mode {mode!r}. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, "
        "IMPORT and, globally, FORWARD",
    )


def not_permitted(message: str) -> ServiceError:
    """The mode in force, or a rule of identity, forbids the operation."""
    return ServiceError(422, 42205, message)


def reference_exists(subject: Subject, version: int) -> ServiceError:
    """Another schema refers to this one."""
    return ServiceError(
        422,
        42206,
        f"One or more references exist to the schema: subject '{subject}', version {version}. "
        f"GET /subjects/{subject}/versions/{version}/referencedby lists them",
    )


def id_does_not_match(wanted: int, there: int) -> ServiceError:
    """The content is in the subject already, under another id than the caller's."""
    return ServiceError(
        422,
        42207,
        f"The id {wanted} does not match: the subject has this schema under id {there}. "
        "Give a version to import it once more under this id",
    )


def invalid_subject(name: str, why: str) -> ServiceError:
    """Not the name of a subject."""
    return ServiceError(422, 42208, f"The specified subject '{name}' is not a valid subject: {why}")


def schema_too_large(size: int, limit: int) -> ServiceError:
    """The schema is longer than the service takes."""
    return ServiceError(
        422, 42209, f"Schema is too large: {size} characters, and the limit is {limit}"
    )


def invalid_rule_set(message: str) -> ServiceError:
    """The rule set breaks a rule of rule sets."""
    return ServiceError(422, 42210, f"Invalid rule set: {message}")


def context_not_empty(context: str) -> ServiceError:
    """A context with subjects in it stays."""
    return ServiceError(422, 42211, f"The specified context '{context}' is not empty.")


def store_unavailable(message: str) -> ServiceError:
    """The store failed; the request may be repeated."""
    return ServiceError(500, 50001, f"Error in the backend data store: {message}")


def too_busy(kind: str, requests: int) -> ServiceError:
    """Too many requests of one kind wait; the request may be repeated."""
    return ServiceError(
        503, 503, f"The registry is busy: {requests} {kind} run or wait. Repeat the request later"
    )
