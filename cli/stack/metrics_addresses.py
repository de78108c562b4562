"""Where the servers of `headworks up` serve their metrics: one option decides about all of them.

Rules: the ports are fixed, so that a configured Prometheus finds them again. Beside a broker that
does not listen on its default port they are free ones, because another stack may run here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from headworks._cli.stack.ports import free_ports
from headworks._host_port import MAX_PORT, join_host_port, split_host_port
from headworks.errors import UsageError

_NONE = "none"
_HOST = "127.0.0.1"
_BROKER_PORT = 9400


@dataclass(frozen=True, slots=True)
class MetricsAddresses:
    """HOST:PORT of the two metrics pages; the registry has its page at its own address."""

    broker: str | None
    audit: str | None

    @classmethod
    def of(cls, option: str | None, *, fixed: bool) -> Self:
        """Return the addresses for `--metrics`; with `fixed`, its default is a fixed port.

        Raises UsageError for an option that is neither an address nor `none`.
        """
        if option == _NONE:
            return cls(None, None)
        if option is None and fixed:
            option = f"{_HOST}:{_BROKER_PORT}"
        found = split_host_port(option or f"{_HOST}:0")
        if found is None or found[1] == MAX_PORT:
            raise UsageError(
                f"--metrics {option!r} is not an address",
                fix="give HOST:PORT, of which the next port is used, too, or none",
            )
        host, port = found
        first, second = (port, port + 1) if port else free_ports(2)
        return cls(join_host_port(host, first), join_host_port(host, second))

    @property
    def urls(self) -> dict[str, str]:
        """The pages by the name of their server."""
        found = {"broker": self.broker, "audit": self.audit}
        return {name: f"http://{at}/metrics" for name, at in found.items() if at is not None}
