"""HOST:PORT in text, as options and settings give it; split and joined here alone."""

from __future__ import annotations

import re
from typing import Final

MAX_PORT: Final = 65_535
# A name or an IPv4 address, or an IPv6 address in brackets: without them it would lose a group.
_HOST_PORT = re.compile(r"(?:\[(?P<ipv6>[^\[\]/\s]+)\]|(?P<host>[^\[\]:/\s]+)):(?P<port>[0-9]+)")


def split_host_port(text: str) -> tuple[str, int] | None:
    """Return the host and port of HOST:PORT or [HOST]:PORT; None for any other text.

    The host comes without brackets. It is a name or an address, and is not looked up.
    """
    found = _HOST_PORT.fullmatch(text.strip())
    if found is None or int(found["port"]) > MAX_PORT:
        return None
    return found["ipv6"] or found["host"], int(found["port"])


def join_host_port(host: str, port: int) -> str:
    """Return HOST:PORT, or [HOST]:PORT if the host is an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
