"""The client that sent a request: its address, its principal, and its permissions.

Rules: without grants a client may do everything, and the check costs next to nothing. Every denial
is counted. Denials of one principal, API, and resource are logged once a minute, so that a client
that retries for ever does not fill the disk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Mapping

from headworks._broker.handlers.counters import BrokerCounters
from headworks._broker.handlers.permissions import BrokerPermissions, RequiredRoles
from headworks._kafka.protocol.apis import APIS
from headworks._server.security import ANONYMOUS, Access, Principal
from headworks.errors import UsageError

_log = logging.getLogger(__name__)
_NO_TRANSACTIONS = (
    "%s from %s (client id %r) asks for transactions, which brokers of a cluster do not have. Its"
    " producer fails, whatever error its client shows. fix: remove transactional.id (in Streams and"
    " Connect: exactly-once) from its configuration"
)
_LOG_INTERVAL_SECONDS = 60.0
_MAX_LOGGED = 10_000
_MAX_RESOURCE_CHARACTERS = 300

# Topic or its id, and partition, to the offset and bytes of a slice.
ServedSlices = dict[tuple[str | bytes, int], tuple[int, int]]


class Authorizer:
    """A broker's grants. If `access` is None, everything is allowed.

    `required` holds the roles that each API requires.
    """

    def __init__(
        self,
        access: Access | None,
        required: Mapping[int, RequiredRoles],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._required = required
        self._clock = clock
        self._permissions: dict[
            Principal, BrokerPermissions
        ] = {}  # of principals that have connected
        self._logged_at: dict[tuple[str, int, str], float] = {}  # by principal, API, and subject
        self._last_grants: object = None  # or the text of the error, if they could not be read
        self.refresh()

    def permissions(self, principal: Principal) -> BrokerPermissions | None:
        """Return the permissions of a principal, or None if everything is allowed."""
        if self._access is None:
            return None
        found = self._permissions.get(principal)
        if found is None:
            found = BrokerPermissions(self._access, principal, self._required)
            self._permissions[principal] = found
        return found

    def refresh(self) -> None:
        """Forget old decisions if the grants have changed. Call this about once a second."""
        if self._access is None:
            return
        try:
            grants: object = self._access.grants
        except UsageError as error:
            grants = str(error)
        # Equal grants in a new object are a change: a decision made in between may be wrong
        unchanged = grants is self._last_grants
        if unchanged or (isinstance(grants, str) and grants == self._last_grants):
            return
        if isinstance(grants, str):
            _log.error(
                "nobody may do anything until this is mended: %s", grants, extra={"error": grants}
            )
        elif self._last_grants is not None:
            _log.info("the grants have changed", extra={"grants": len(self._access.grants)})
        self._last_grants = grants
        for permissions in self._permissions.values():
            permissions.forget()

    def log_denial(self, client: Client, api: int, resource: str) -> None:
        """Log that a client may not use an API on a resource, at most once a minute."""
        if not self._due((client.principal.name, api, resource)):
            return
        name = APIS[api].name
        about = {"principal": client.principal.name, "peer": client.peer}
        _log.warning(
            "%s from %s may not %s %s",
            client.principal.name,
            client.peer,
            name,
            resource,
            extra={**about, "api": name, "resource": resource},
        )

    def log_transactional(self, client: Client, api: int, client_id: str) -> None:
        """Log that a client wants transactions, at most once a minute: few clients show why."""
        shown = client_id[:_MAX_RESOURCE_CHARACTERS]
        if not self._due((client.principal.name, api, shown)):
            return
        about = {"principal": client.principal.name, "peer": client.peer, "api": APIS[api].name}
        _log.warning(_NO_TRANSACTIONS, client.principal.name, client.peer, shown, extra=about)

    def _due(self, key: tuple[str, int, str]) -> bool:
        """Return whether to log this now, and remember that it was."""
        now = self._clock()
        if now - self._logged_at.get(key, -_LOG_INTERVAL_SECONDS) < _LOG_INTERVAL_SECONDS:
            return False
        if len(self._logged_at) >= _MAX_LOGGED:
            self._logged_at.clear()
        self._logged_at[key] = now
        return True


class Client:
    """The client of one connection."""

    __slots__ = ("_authorizer", "_counters", "_permissions", "peer", "principal", "served")

    def __init__(
        self,
        peer: str,
        counters: BrokerCounters,
        authorizer: Authorizer,
        principal: Principal = ANONYMOUS,
    ) -> None:
        self.peer = peer  # its HOST:PORT
        self.served: ServedSlices = {}  # the last that each partition's fetches got
        self._counters = counters
        self._authorizer = authorizer
        self.log_in(principal)

    def log_in(self, principal: Principal) -> None:
        """Make the client act as this principal from now on."""
        self.principal = principal
        self._permissions = self._authorizer.permissions(principal)

    @property
    def visibility(self) -> Hashable:
        """A key that is equal for clients to whom the same topics are visible."""
        if self._permissions is None:
            return None
        return self.principal, self._permissions.version

    def may_use_topic(self, api: int, name: str) -> bool:
        """Return whether it may use this API on this topic; count and log a denial."""
        if self._permissions is None or self._permissions.topic(api, name):
            return True
        self._deny(api, f"topic {name!r}")
        return False

    def may_use_group(self, api: int, name: str) -> bool:
        """Return whether it may use this API on this consumer group; count and log a denial."""
        if self._permissions is None or self._permissions.group(api, name):
            return True
        self._deny(api, f"group {name!r}")
        return False

    def may_use_broker(self, api: int) -> bool:
        """Return whether it may use this API on the whole broker; count and log a denial."""
        if self._permissions is None or self._permissions.broker(api):
            return True
        self._deny(api, "broker")
        return False

    def sees_topic(self, api: int, name: str) -> bool:
        """Return whether a listing shows it this topic. A hidden topic is not logged."""
        return self._permissions is None or self._permissions.topic(api, name)

    def sees_group(self, api: int, name: str) -> bool:
        """Return whether a listing shows it this group. A hidden group is not logged."""
        return self._permissions is None or self._permissions.group(api, name)

    def sees_broker(self, api: int) -> bool:
        """Return whether it may use this API on the whole broker, without logging a denial."""
        return self._permissions is None or self._permissions.broker(api)

    def wants_transactions(self, api: int, client_id: str | None) -> None:
        """Log that it asks for transactions, which this broker does not have."""
        self._authorizer.log_transactional(self, api, client_id or "")

    def count_error(self, api: int, error: int) -> None:
        """Count an error that the client was answered with."""
        self._counters.errors[api, error] += 1

    def _deny(self, api: int, resource: str) -> None:
        self._counters.denied[api] += 1
        self._authorizer.log_denial(self, api, resource[:_MAX_RESOURCE_CHARACTERS])
