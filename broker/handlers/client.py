"""Who sent a request: address, principal, and what they may do.

Rules: without permissions (no users and no grants are configured, or users without grants) the
client may do everything, and asking costs next to nothing. A refusal is counted every time, and
logged once a minute for the same principal, API and thing: a client that tries for ever must not
fill the disk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable

from headworks._broker.handlers.counters import Counters
from headworks._broker.handlers.permissions import Permissions
from headworks._kafka.protocol.apis import APIS
from headworks._server.security import ANONYMOUS, Access, Principal
from headworks.errors import UsageError

__all__ = ["Authority", "Client"]

_log = logging.getLogger(__name__)
_LOG_AGAIN = 60.0
_MOST_LOGGED = 10_000


class Authority:
    """The grants of a broker, and what was logged of refusals; `access` None: all is allowed."""

    def __init__(
        self, access: Access | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._access = access
        self._clock = clock
        self._known: dict[Principal, Permissions] = {}
        self._logged: dict[tuple[str, int, str], float] = {}
        self._seen: object = None
        self.refresh()

    def permissions(self, principal: Principal) -> Permissions | None:
        """What a principal may do; None: everything."""
        if self._access is None:
            return None
        found = self._known.get(principal)
        if found is None:
            found = self._known[principal] = Permissions(self._access, principal)
        return found

    def refresh(self) -> None:
        """See whether the grants have changed; to be called every second or so."""
        if self._access is None:
            return
        try:
            grants: object = self._access.grants
        except UsageError as error:
            grants = str(error)
        # The same grants, read again, are a change: what was decided in between may be wrong
        if grants is self._seen or (isinstance(grants, str) and grants == self._seen):
            return
        if isinstance(grants, str):
            _log.error(
                "nobody may do anything until this is mended: %s", grants, extra={"error": grants}
            )
        elif self._seen is not None:
            _log.info("the grants have changed", extra={"grants": len(self._access.grants)})
        self._seen = grants
        for permissions in self._known.values():
            permissions.forget()

    def log_refusal(self, client: Client, api: int, what: str) -> None:
        """Say that a client may not do something, unless that was said a short while ago."""
        key, now = (client.principal.name, api, what), self._clock()
        if now - self._logged.get(key, -_LOG_AGAIN) < _LOG_AGAIN:
            return
        if len(self._logged) >= _MOST_LOGGED:
            self._logged.clear()
        self._logged[key] = now
        name = APIS[api].name
        _log.warning(
            "%s from %s may not %s %s",
            client.principal.name,
            client.peer,
            name,
            what,
            extra={
                "principal": client.principal.name,
                "peer": client.peer,
                "api": name,
                "resource": what,
            },
        )


class Client:
    """Whoever is at the other end of a connection."""

    __slots__ = ("_authority", "_counters", "_permissions", "peer", "principal")

    def __init__(
        self,
        peer: str,
        counters: Counters,
        authority: Authority,
        principal: Principal = ANONYMOUS,
    ) -> None:
        self.peer = peer
        self._counters = counters
        self._authority = authority
        self.log_in(principal)

    def log_in(self, principal: Principal) -> None:
        """From now on it is this principal."""
        self.principal = principal
        self._permissions = self._authority.permissions(principal)

    @property
    def view(self) -> Hashable:
        """What tells replies apart that depend on what the client may see."""
        if self._permissions is None:
            return None
        return self.principal, self._permissions.version

    def may_topic(self, api: int, name: str) -> bool:
        """Whether it may use this API on this topic; a refusal is counted and logged."""
        if self._permissions is None or self._permissions.topic(api, name):
            return True
        self._refused(api, f"topic {name!r}")
        return False

    def may_group(self, api: int, name: str) -> bool:
        """Whether it may use this API on this consumer group; as `may_topic`."""
        if self._permissions is None or self._permissions.group(api, name):
            return True
        self._refused(api, f"group {name!r}")
        return False

    def may_broker(self, api: int) -> bool:
        """Whether it may use this API on the broker as a whole; as `may_topic`."""
        if self._permissions is None or self._permissions.broker(api):
            return True
        self._refused(api, "broker")
        return False

    def sees_topic(self, api: int, name: str) -> bool:
        """As `may_topic`, for a listing that leaves out what may not be seen: nothing is logged."""
        return self._permissions is None or self._permissions.topic(api, name)

    def sees_group(self, api: int, name: str) -> bool:
        """As `may_group`, for a listing."""
        return self._permissions is None or self._permissions.group(api, name)

    def answered(self, api: int, error: int) -> None:
        """An error was answered to it."""
        self._counters.errors[api, error] += 1

    def _refused(self, api: int, what: str) -> None:
        self._counters.denied[api] += 1
        self._authority.log_refusal(self, api, what[:300])
