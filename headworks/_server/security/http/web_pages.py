"""Which requests a server refuses because a web page may have sent them.

A browser reaches the servers of its machine and of its network, and every page that it shows can
make it send requests there. The user of the browser notices nothing.

Rules:

- A server that authenticates nobody answers under an address, `localhost`, and the names that its
  operator gives. A page therefore cannot reach it under a name of its own (DNS rebinding).
- A request that can change something is refused if a page of another origin sent it. Browsers
  report that in `Sec-Fetch-Site`. Over plain HTTP to other machines they omit it, and `Origin`
  decides.
- Programs other than browsers send neither header, and nothing changes for them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from headworks.errors import UsageError

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES = (b"same-origin", b"none")  # none: the user typed the address
_HOST_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
Refusal = tuple[int, str]  # HTTP status, and the reason


@dataclass(frozen=True, slots=True)
class WebPageRules:
    """The names under which a server answers. `any_host`: under every name."""

    any_host: bool = False
    host_names: frozenset[str] = frozenset()

    def refusal(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> Refusal | None:
        """Return why a request is refused, from its method and its headers in lower case."""
        safe = method in _SAFE_METHODS
        if safe and self.any_host:
            return None
        sent = dict(headers)
        host = sent.get(b"host", b"")
        # Only programs omit the host. Browsers never do.
        if not (self.any_host or _is_local(host) or not host or _name_in(host) in self.host_names):
            name = _name_in(host)
            return 421, (
                f"this server answers under an address or localhost, and not under {name!r}."
                f" Fix: if that is a name of this server, start it with --host-name {name}"
            )
        if safe:
            return None
        site = sent.get(b"sec-fetch-site")
        if site is not None:
            foreign = site not in _OWN_SITES
        else:
            foreign = self._is_foreign(sent.get(b"origin"), host)
        if foreign:
            return 403, (
                "a web page of another origin sent this request, and it could change something."
                " Fix: send it from a program, or from a page of this server"
            )
        return None

    def _is_foreign(self, origin: bytes | None, host: bytes) -> bool:
        """Return whether an `Origin` is neither the server's address nor one of its names."""
        if origin is None:
            return False
        place = origin.partition(b"://")[2]
        return place.lower() != host.lower() and _name_in(place) not in self.host_names


ONLY_ADDRESSES = WebPageRules()


def read_host_names(text: str) -> frozenset[str]:
    """Return the names in a list with commas. Raises UsageError for what is not a host name."""
    names = frozenset(name for name in re.split(r"[,\s]+", text.lower()) if name)
    for name in names:
        if _HOST_NAME.fullmatch(name) is None:
            raise UsageError(
                f"--host-name {name!r} is not a host name",
                fix="give the name without scheme and port, for example registry.internal",
            )
    return names


@lru_cache(maxsize=256)  # every request asks, and most have the same host
def _is_local(host: bytes) -> bool:
    """Return whether a `Host` header has an IP address or localhost."""
    name = _name_in(host)
    if name == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _name_in(host: bytes) -> str:
    """Return the name in a `Host` header, without the port."""
    text = host.decode("latin-1").lower()
    return text.partition("]")[0][1:] if text.startswith("[") else text.partition(":")[0]
