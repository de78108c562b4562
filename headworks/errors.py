"""The one tree of errors, split by their cause.

    HeadworksError
    ├── UsageError            the caller's input: a flag, a file, a setting      exit 2
    │   └── SchemaError       an Avro schema that breaks a rule of Avro          exit 2
    ├── FindingsError         the work was done and its result is "no"           exit 1
    │   └── IncompatibleError a schema change that breaks a reader               exit 1
    ├── UnreachableError      a service that does not answer                     exit 3
    ├── RefusedError          a service that answered, and refused               exit 4
    └── CorruptError          bytes that differ from those written               exit 1

Rules: an error names the object, the place, the broken rule, and the fix. No error is logged and
ignored: raise it, and let the caller at the edge decide.
"""

from __future__ import annotations

__all__ = [
    "CorruptError",
    "FindingsError",
    "HeadworksError",
    "IncompatibleError",
    "RefusedError",
    "SchemaError",
    "UnreachableError",
    "UsageError",
]


class HeadworksError(Exception):
    """Base of every error that Headworks raises on purpose.

    `message` names the problem and the place, and `fix` is the next step as an imperative.
    """

    exit_code = 2

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return self.message if self.fix is None else f"{self.message}\n  fix: {self.fix}"


class UsageError(HeadworksError):
    """The caller's input is wrong: a flag, a file, a setting."""


class SchemaError(UsageError):
    """A schema that breaks a rule of Avro, at `pointer` (a JSON pointer into its text)."""

    def __init__(
        self, message: str, *, pointer: str = "", rule: str = "avro", fix: str | None = None
    ) -> None:
        where = f" (at {pointer})" if pointer else ""
        super().__init__(f"{message}{where}", fix=fix)
        self.reason = message
        self.pointer = pointer
        self.rule = rule


class FindingsError(HeadworksError):
    """The work was done, and its result is "no": incompatible, incomplete."""

    exit_code = 1


class IncompatibleError(FindingsError):
    """A schema change that some reader cannot follow."""


class UnreachableError(HeadworksError):
    """A service does not answer: broker, registry, metastore, HiveServer2."""

    exit_code = 3


class RefusedError(HeadworksError):
    """A service answered and refused, with its own `status` and `code`."""

    exit_code = 4

    def __init__(
        self, message: str, *, status: int = 0, code: int = 0, fix: str | None = None
    ) -> None:
        super().__init__(message, fix=fix)
        self.status = status
        self.code = code


class CorruptError(HeadworksError):
    """Bytes on disk or on the wire differ from those that were written."""

    exit_code = 1
