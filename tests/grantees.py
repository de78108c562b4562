"""The users of the grant matrix: every role on one name, under a prefix, on all names, on none.

The registry, the broker, and the console are each asked about the same users. The expected answers
follow docs/security.md and share no code with the servers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headworks._server.security import Role

NAME = "name"
_PREFIX, _ALL, _NONE = "prefix", "all", "none"


@dataclass(frozen=True)
class Grantee:
    """A user with one role and one scope: one name, a prefix, all names, or no grant."""

    role: Role
    scope: str

    @property
    def user(self) -> str:
        return f"{self.role}-{self.scope}"

    def has(self, roles: Iterable[Role]) -> bool:
        """Whether one of these roles is granted, for whichever names."""
        return self.scope != _NONE and (self.role is Role.ADMIN or self.role in roles)

    def covers(self, asked: str, *, name: str, prefix: str) -> bool:
        """Whether the grant is about `asked`; "" stands for all names."""
        return {
            NAME: asked == name,
            _PREFIX: asked.startswith(prefix),
            _ALL: True,
            _NONE: False,
        }[self.scope]

    def grant(self, *, name: str, prefix: str, on: str) -> str:
        """The grant as TOML; empty for the user without one."""
        if self.scope == _NONE:
            return ""
        about = {NAME: f'name = "{name}"', _PREFIX: f'prefix = "{prefix}"', _ALL: ""}[self.scope]
        return f"""
            [[grants]]
            to = ["{self.user}"]
            roles = ["{self.role}"]
            on = {on}
            {about}
            """


GRANTEES = [
    *(Grantee(role, scope) for role in Role for scope in (NAME, _PREFIX, _ALL)),
    Grantee(Role.READER, _NONE),
]


def grants_file(*, name: str, prefix: str, on: str) -> str:
    """Grants for all GRANTEES on these kinds of things (a TOML list)."""
    return "".join(one.grant(name=name, prefix=prefix, on=on) for one in GRANTEES)
