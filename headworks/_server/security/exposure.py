"""Addresses to listen on, and when one that other machines can reach is refused.

Rules: a server that asks nobody who they are listens on loopback only, unless it is told that the
network is trusted.
"""

from __future__ import annotations

import ipaddress

from headworks.errors import UsageError

__all__ = ["is_loopback", "parse_listen", "refuse_exposure"]


def parse_listen(listen: str, option: str = "--listen") -> tuple[str, int]:
    """Host (an IP address) and port of HOST:PORT or [HOST]:PORT; UsageError if it is neither."""
    host, separator, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{option} {listen!r} is not HOST:PORT", fix="for example 127.0.0.1:9092")
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise UsageError(
            f"{option} {listen!r}: the host must be an address of this machine",
            fix="give an IP address, for example 127.0.0.1:9092",
        ) from None
    return str(address), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an IP address."""
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


def refuse_exposure(host: str, *, what: str, guarded: bool, insecure: bool) -> None:
    """UsageError if other machines reach `host` and nobody is asked who they are."""
    if is_loopback(host) or guarded or insecure:
        return
    raise UsageError(
        f"{host} is reachable from other machines, and the {what} would ask nobody who they are:"
        f" whoever reaches it may read, write and delete everything",
        fix="give --users FILE (`headworks user set` writes it), listen on 127.0.0.1, or give"
        " --insecure if the network is trusted",
    )
