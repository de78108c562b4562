"""Grants: the roles of principals on topics, subjects, and consumer groups.

    [[grants]]
    to = ["alice", "group:etl"]     # users, groups of a token; "*": every authenticated user;
                                    # "anonymous": clients without credentials
    roles = ["reader", "writer"]    # reader, writer, admin
    prefix = "shop."                # of the name; default: all names
    name = "shop.orders"            # instead of a prefix: exactly this name
    on = ["topics", "subjects"]     # topics, subjects, groups; default: all three

Rules:

- Everything that is not granted is refused. `admin` includes the other two roles. `writer` does not
  include `reader`: each server decides which roles an operation requires.
- Without a file, every authenticated client may do everything, and other clients nothing.
- Only `Grant.gives` compares names, so that broker, registry, and console interpret a grant alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from headworks._server.security.reloaded_file import ReloadedFile
from headworks._subject import Subject
from headworks._toml_text import parse_toml
from headworks.errors import UsageError

_E = TypeVar("_E", bound=StrEnum)
_GROUP = "group:"
_DEFAULT_CONTEXT = ":.:"  # which the names of subjects leave out


class Role(StrEnum):
    """The role of a principal on a resource."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"


class ResourceType(StrEnum):
    """The types of resources that grants are about."""

    TOPICS = "topics"
    SUBJECTS = "subjects"
    GROUPS = "groups"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated name, and its groups as a token lists them."""

    name: str
    groups: tuple[str, ...] = ()


ANONYMOUS = Principal("anonymous")


@dataclass(frozen=True, slots=True)
class Grant:
    """Roles for some principals on the names that begin with `prefix`, or on `name` alone."""

    to: frozenset[str]
    roles: frozenset[Role]
    prefix: str
    on: frozenset[ResourceType]
    name: str | None = None

    def gives(self, principal: Principal, role: Role, kind: ResourceType, name: str) -> bool:
        """Return whether it gives the principal the role on a resource.

        The name "" stands for every name: a grant on one name or a prefix does not give it.
        """
        named = name.startswith(self.prefix) if self.name is None else name == self.name
        return named and self.gives_somewhere(principal, role, kind)

    def gives_somewhere(self, principal: Principal, role: Role, kind: ResourceType) -> bool:
        """Return whether it gives the principal the role on some resource of a type.

        This admits nobody to a resource with a name: use `gives`.
        """
        if kind not in self.on or not (role in self.roles or Role.ADMIN in self.roles):
            return False
        if principal == ANONYMOUS:
            return ANONYMOUS.name in self.to
        names = {"*", *(f"{_GROUP}{group}" for group in principal.groups)}
        if not principal.name.startswith(_GROUP):  # a token's name must not look like a group
            names.add(principal.name)
        return not self.to.isdisjoint(names)


_EVERYTHING = Grant(frozenset({"*"}), frozenset(Role), "", frozenset(ResourceType))


def read_grants(text: str) -> tuple[Grant, ...]:
    """Parse a file of grants. UsageError names the wrong grant and the rule."""
    content = parse_toml(text, "the file of grants")
    unknown = set(content) - {"grants"}
    grants = content.get("grants", [])
    if unknown or not isinstance(grants, list):
        raise UsageError(
            f"the file of grants has {', '.join(sorted(unknown)) or 'grants'} where only a list"
            " [[grants]] may be",
            fix="begin every grant with [[grants]]",
        )
    return tuple(_grant(number, grant) for number, grant in enumerate(grants, 1))


def _grant(number: int, grant: Mapping[str, Any]) -> Grant:
    unknown = set(grant) - {"to", "roles", "prefix", "name", "on"}
    if unknown:
        raise UsageError(
            f"grant {number} has an unknown key {', '.join(sorted(unknown))}",
            fix="a grant has to, roles, prefix or name, on",
        )
    prefix, name = grant.get("prefix", ""), grant.get("name")
    if not isinstance(prefix, str):
        raise UsageError(f"grant {number}: prefix must be a string")
    if name is not None and not (isinstance(name, str) and name):
        raise UsageError(f"grant {number}: name must be a string, and not empty")
    if name is not None and "prefix" in grant:
        raise UsageError(
            f"grant {number} has a prefix and a name", fix="make two grants of it, or leave one out"
        )
    on = _members(number, grant, "on", ResourceType) if "on" in grant else frozenset(ResourceType)
    if ResourceType.SUBJECTS in on:
        _refuse_other_spelling(number, prefix, name)
    return Grant(
        frozenset(_texts(number, grant, "to")),
        _members(number, grant, "roles", Role),
        prefix,
        on,
        name,
    )


def _refuse_other_spelling(number: int, prefix: str, name: str | None) -> None:
    """Raise UsageError for a spelling of a subject that no subject has: it would match nothing."""
    written = prefix if name is None else name
    spelled = written.removeprefix(_DEFAULT_CONTEXT) if name is None else str(Subject.parse(name))
    if spelled != written:
        key = "prefix" if name is None else "name"
        raise UsageError(
            f"grant {number}: the {key} {written!r} matches nothing, because subjects are not"
            " written in this way",
            fix=f"write {key} = {spelled!r}" if spelled else f"leave out the {key}",
        )


def _texts(number: int, grant: Mapping[str, Any], key: str) -> list[str]:
    found = grant.get(key)
    if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
        raise UsageError(f"grant {number}: {key} must be a list of strings, and not empty")
    return found


def _members(number: int, grant: Mapping[str, Any], key: str, kind: type[_E]) -> frozenset[_E]:
    found = _texts(number, grant, key)
    for one in found:
        if one not in set(kind):
            raise UsageError(f"grant {number}: {key} has {one!r}", fix=f"use {', '.join(kind)}")
    return frozenset(kind(one) for one in found)


class Access:
    """The grants of a file, reloaded when it changes; `load(None)` has no file."""

    def __init__(self, file: ReloadedFile[tuple[Grant, ...]] | None) -> None:
        self._file = file

    @classmethod
    def load(cls, path: Path | None) -> Access:
        """Load a file of grants; UsageError if it cannot be read or parsed."""
        return cls(None if path is None else ReloadedFile(path, read_grants))

    @property
    def grants(self) -> tuple[Grant, ...]:
        """The current grants; the same object until they change."""
        return _EVERYBODY if self._file is None else self._file.get()

    def allows(self, principal: Principal, role: Role, kind: ResourceType, name: str) -> bool:
        """Return whether the principal has the role on the resource with this name."""
        return any(grant.gives(principal, role, kind, name) for grant in self.grants)

    def allows_everywhere(self, principal: Principal, role: Role, kind: ResourceType) -> bool:
        """Return whether the principal has the role on every name."""
        return self.allows(principal, role, kind, "")

    def allows_somewhere(self, principal: Principal, role: Role, kind: ResourceType) -> bool:
        """Return whether the principal can have the role on some name."""
        return any(grant.gives_somewhere(principal, role, kind) for grant in self.grants)


_EVERYBODY = (_EVERYTHING,)
