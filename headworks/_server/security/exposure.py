"""Listen addresses, and the rule for those that other machines can reach.

Rules: every server of ours, metrics pages included, applies this one rule. A server that does not
authenticate its clients listens on loopback only, unless the operator passes `--insecure`.
"""

from __future__ import annotations

import ipaddress

from headworks._host_port import split_host_port
from headworks.errors import UsageError

_FIX = "listen on 127.0.0.1, or pass --insecure if the network is trusted"


def parse_listen(listen: str, option: str = "--listen") -> tuple[str, int]:
    """Return the host (an IP address) and port of HOST:PORT or [HOST]:PORT.

    Raises UsageError, with the name of the option, if it is neither.
    """
    found = split_host_port(listen)
    if found is None:
        raise UsageError(f"{option} {listen!r} is not HOST:PORT", fix="for example 127.0.0.1:9092")
    host, port = found
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise UsageError(
            f"{option} {listen!r}: the host must be an address of this machine",
            fix="give an IP address, for example 127.0.0.1:9092",
        ) from None
    return str(address), port


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an IP address."""
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


def refuse_exposure(
    host: str,
    server: str,
    *,
    authenticates: bool,
    insecure: bool,
    users_option: bool = True,
) -> None:
    """Raise UsageError if other machines can reach `host` and the server authenticates nobody.

    The fix names `--users` only if the command has that option.
    """
    if is_loopback(host) or authenticates or insecure:
        return
    users = "pass --users FILE (`headworks user set` writes it), "
    raise UsageError(
        f"other machines can reach {host}, and the {server} would not authenticate clients:"
        " anyone who can reach it would have full access",
        fix=f"{users if users_option else ''}{_FIX}",
    )


def refuse_plaintext(host: str, server: str, *, encrypts: bool, insecure: bool) -> None:
    """Raise UsageError if passwords would cross a network without TLS."""
    if is_loopback(host) or encrypts or insecure:
        return
    raise UsageError(
        f"other machines can reach {host}, and the {server} has no TLS: anyone on the network path"
        " could read passwords and messages",
        fix="pass --tls-cert FILE and --tls-key FILE, or --insecure if the network is trusted",
    )
