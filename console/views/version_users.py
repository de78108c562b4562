"""The users of one version of a subject, as the subject's page shows them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headworks._audit.usage import SubjectUsage, VersionUser


@dataclass(frozen=True, slots=True)
class VersionUsers:
    """The programs that use the shown version, the last user first.

    `since` is when all uses began to be counted, in ms since 1970 (None: they are not).
    `unknown_readers` are groups that report no version (None: the broker was not asked).
    """

    written_by: tuple[VersionUser, ...]
    read_by: tuple[VersionUser, ...]
    since: int | None
    unknown_readers: tuple[str, ...] | None


def version_users(usage: SubjectUsage | None, version: int) -> VersionUsers | None:
    """Return the users of a version, or None if its usage is not known."""
    found = usage.version(version) if usage is not None else None
    if usage is None or found is None:
        return None
    return VersionUsers(found.written_by, found.read_by, usage.since, usage.unknown_readers)
