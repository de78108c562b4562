"""The one error tree, split by whose fault it is.

    HeadworksError
    ├── UsageError            the caller's input: a flag, a file, a setting      exit 2
    │   └── SchemaError       an Avro schema that breaks a rule of Avro          exit 2
    ├── FindingsError         the work was done and its answer is "no"           exit 1
    │   └── IncompatibleError a schema change that breaks a reader               exit 1
    ├── UnreachableError      a service that does not answer                     exit 3
    ├── RefusedError          a service that answered, and refused               exit 2
    └── CorruptError          bytes that are not what was written                exit 2

Rules: an error names the thing, the place, the rule it broke and the way out (`fix`, the next
thing to do). Nothing is logged and swallowed: raise, and let the edge decide.
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

    `message` says what is wrong and where; `fix` says what to do next.
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
    """The question was answered, and the answer is "no": incompatible, incomplete."""

    exit_code = 1


class IncompatibleError(FindingsError):
    """A schema change that some reader cannot follow."""


class UnreachableError(HeadworksError):
    """A service does not answer: broker, registry, metastore, HiveServer2."""

    exit_code = 3


class RefusedError(HeadworksError):
    """A service answered and refused; `status` and `code` are its own words."""

    def __init__(
        self, message: str, *, status: int = 0, code: int = 0, fix: str | None = None
    ) -> None:
        super().__init__(message, fix=fix)
        self.status = status
        self.code = code


class CorruptError(HeadworksError):
    """Bytes on disk or on the wire are not what was written there."""
