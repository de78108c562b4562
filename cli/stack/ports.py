"""Ports on loopback for servers that keep theirs over restarts.

Rule: no other process gets such a port by chance while its server is down. The kernel takes ports
for port 0 and for outgoing connections from one range; these lie below it.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from random import Random

from headworks import _system_calls

_LOWEST_PORT = 20_000
_PORT_RANGE_FILE = _system_calls.PROC / "sys/net/ipv4/ip_local_port_range"


def free_ports(count: int, *, handed_out: Path = _PORT_RANGE_FILE) -> list[int]:
    """Return free ports on loopback; `handed_out` is the file of the kernel's range."""
    quiet = range(_LOWEST_PORT, _first_handed_out(handed_out))
    candidates = Random().sample(quiet, len(quiet))
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            probe = stack.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", candidates.pop() if candidates else 0))
            except OSError:
                continue
            found.append(probe.getsockname()[1])
    return found


def _first_handed_out(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 49_152  # IANA's, which other systems keep to
