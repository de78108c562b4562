"""Grants: who may read, write and administer which topics, subjects and consumer groups.

    [[grants]]
    to = ["alice", "group:etl"]     # users, groups of a token; "*": all who said who they are;
                                    # "anonymous": who did not
    roles = ["reader", "writer"]    # reader, writer, admin
    prefix = "shop."                # of the name; all names if left out
    name = "shop.orders"            # in place of a prefix: this one and no other
    on = ["topics", "subjects"]     # topics, subjects, groups; all three if left out

Rules:

- What is not granted is refused. `admin` includes the other two; `writer` does not include
  `reader`: each server says which roles an operation takes.
- Without a file, whoever is authenticated may do everything and nobody else anything.
- Nothing here knows of requests: a server asks `allows`.
- Only `Grant.gives` compares names, so that broker, registry and console read a grant alike.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from headworks._server.security.reloaded_file import ReloadedFile
from headworks.errors import UsageError

__all__ = ["ANONYMOUS", "Access", "Grant", "Principal", "ResourceType", "Role", "read_grants"]

_E = TypeVar("_E", bound=StrEnum)
_GROUP = "group:"


class Role(StrEnum):
    """What somebody may be."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"


class ResourceType(StrEnum):
    """What is guarded."""

    TOPICS = "topics"
    SUBJECTS = "subjects"
    GROUPS = "groups"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who somebody is, and the groups that a token says they are in."""

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
        """Whether it gives the principal the role for the thing of that kind and name.

        "" asks for every name, so a grant on one name or on a prefix does not give it.
        """
        named = name.startswith(self.prefix) if self.name is None else name == self.name
        return named and self.gives_somewhere(principal, role, kind)

    def gives_somewhere(self, principal: Principal, role: Role, kind: ResourceType) -> bool:
        """Whether it gives the principal the role for some thing of that kind, whatever its name.

        This alone never admits anybody to a thing that has a name: ask `gives`.
        """
        if kind not in self.on or not (role in self.roles or Role.ADMIN in self.roles):
            return False
        if principal == ANONYMOUS:
            return ANONYMOUS.name in self.to
        names = {"*", *(f"{_GROUP}{group}" for group in principal.groups)}
        if not principal.name.startswith(_GROUP):  # a token may name anybody, but make no group
            names.add(principal.name)
        return not self.to.isdisjoint(names)


_EVERYTHING = Grant(frozenset({"*"}), frozenset(Role), "", frozenset(ResourceType))


def read_grants(text: str) -> tuple[Grant, ...]:
    """The grants of a file's text. UsageError names the grant that is wrong and the rule."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the file of grants is not TOML: {error}") from None
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
    return Grant(
        frozenset(_texts(number, grant, "to")),
        _members(number, grant, "roles", Role),
        prefix,
        _members(number, grant, "on", ResourceType) if "on" in grant else frozenset(ResourceType),
        name,
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
    """Who may do what, by a file that is reread when it changes; `load(None)` has no file."""

    def __init__(self, file: ReloadedFile[tuple[Grant, ...]] | None) -> None:
        self._file = file

    @classmethod
    def load(cls, path: Path | None) -> Access:
        """The grants of a file; UsageError if it cannot be read or understood."""
        return cls(None if path is None else ReloadedFile(path, read_grants))

    @property
    def grants(self) -> tuple[Grant, ...]:
        """The grants as they are now; the same object as long as they do not change."""
        return _EVERYBODY if self._file is None else self._file.get()

    def allows(self, principal: Principal, role: Role, kind: ResourceType, name: str) -> bool:
        """Whether the principal has the role for the thing of that name."""
        return any(grant.gives(principal, role, kind, name) for grant in self.grants)

    def allows_everywhere(self, principal: Principal, role: Role, kind: ResourceType) -> bool:
        """Whether the principal has the role for every name."""
        return self.allows(principal, role, kind, "")

    def allows_somewhere(self, principal: Principal, role: Role, kind: ResourceType) -> bool:
        """Whether there can be a name for which the principal has the role."""
        return any(grant.gives_somewhere(principal, role, kind) for grant in self.grants)


_EVERYBODY = (_EVERYTHING,)
