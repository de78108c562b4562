"""`headworks schema usage`: who writes and reads which version of a subject."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.audit_store import AuditOptions, existing_store_url
from headworks._cli.option_groups import expand_groups
from headworks._cli.output import Format, FormatOption, print_json, print_status, print_table
from headworks._cli.times import format_instant
from headworks._settings import resolve_optional
from headworks.errors import HeadworksError, UsageError

if TYPE_CHECKING:
    from headworks._audit.store import AuditStore
    from headworks._audit.usage import SubjectUsage, VersionUser
    from headworks._ci.usage import AskUsage

_HEADER = ("version", "id", "use", "program", "hosts", "messages", "last used")
SubjectArgument = Annotated[str, typer.Argument(metavar="SUBJECT", help="the subject")]


@expand_groups
def usage(source: AuditOptions, subject: SubjectArgument, form: FormatOption = Format.TEXT) -> None:
    """Show who writes and who reads each version of a subject, and since when that is counted."""
    found = usage_of(source, subject)
    if form is Format.JSON:
        print_json(found.as_dict(format_instant))
    else:
        _print(found)


def usage_of(source: AuditOptions, subject: str) -> SubjectUsage:
    """Return the usage of a subject from the audit's store, which is brought up to date."""
    from headworks._audit.usage_reader import group_readers, read_usage
    from headworks.registry_client import RegistryClient

    registry = RegistryClient(source.registry_url)
    readers = group_readers(source.servers, resolve_optional("zookeeper", source.zookeeper))
    with source.reconciled_store() as store:
        return read_usage(store, registry, subject, readers)


@contextmanager
def usage_for_gate(console: str | None) -> Iterator[AskUsage | None]:
    """Give the gate its usage: of a console, or of the store on this machine if there is one.

    The store is opened for the first subject with findings. If it or a server does not answer, a
    warning says so, and the verdict is that without usage: nobody has asked for it.
    """
    from headworks._ci.usage_source import console_usage

    if console == "none":
        yield None
    elif console is not None:
        yield console_usage(console)
    elif existing_store_url(None) is None:
        yield None
    else:
        with ExitStack() as stack:
            yield _Nearby(stack)


class _Nearby:
    """Asks the store on this machine."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._store: AuditStore | None = None
        self._failed = False

    def __call__(self, subject: str) -> SubjectUsage | None:
        from headworks._audit.usage_reader import group_readers, read_usage
        from headworks.registry_client import RegistryClient

        if self._failed:
            return None
        source = AuditOptions()
        try:
            if self._store is None:
                self._store = self._stack.enter_context(source.reconciled_store())
            readers = group_readers(source.servers, resolve_optional("zookeeper", None))
            registry = RegistryClient(source.registry_url)
            return read_usage(self._store, registry, subject, readers)
        except UsageError:
            return None  # the registry does not have the subject
        except HeadworksError as error:
            self._failed = True
            print_status(f"nothing is known of who uses which version: {error.message}")
            return None


def _print(found: SubjectUsage) -> None:
    topics = ", ".join(found.topics) or "no known topic"
    if found.since is None:
        print_status(f"{found.subject} ({topics}): nobody has counted its messages by schema")
    else:
        print_status(f"{found.subject} ({topics}): counted since {format_instant(found.since)}")
    rows = []
    for version in found.versions:
        label = (version.version, version.id)
        users = [("writes", user) for user in version.written_by]
        users += [("reads", user) for user in version.read_by]
        rows += [_row(label, use, user) for use, user in users]
        if not users:
            rows.append((*label, "", "no use was counted", "", "", ""))
    for use, others in (
        ("reads dicts", found.dict_readers),
        ("reads, not registered", found.unregistered_readers),
        ("writes another schema", found.other_writers),
        ("not counted by schema", found.uncounted),
    ):
        rows += [_row(("", ""), use, user) for user in others]
    print_table(_HEADER, rows)
    for version in found.versions:
        if version.deprecated:
            print_status(f"version {version.version} is deprecated: {version.deprecated}")
    if found.unknown_readers is None:
        print_status("unknown readers: the broker was not asked")
    elif found.unknown_readers:
        names = ", ".join(found.unknown_readers)
        print_status(f"unknown readers, which commit offsets and report nothing: {names}")
        print_way_to_be_known()


def print_way_to_be_known() -> None:
    """Print what to do about unknown readers."""
    from headworks._audit.usage import TO_BE_KNOWN

    print_status(f"fix: {TO_BE_KNOWN}")


def _row(label: tuple[object, object], use: str, user: VersionUser) -> tuple[object, ...]:
    name = user.name if user.application else f"all of tier {user.tier}"
    messages = f"{user.messages:,}" if user.messages else ""
    at = format_instant(user.last_used)
    return (*label, use, name, ", ".join(user.hosts), messages, at)
