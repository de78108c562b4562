"""The librdkafka properties with which every client of ours reaches the broker.

Rules: SDKs, loader, audit, and commands use this one module. A user authenticates with
SCRAM-SHA-256, so that no password crosses the network. TLS is used if `tls_ca` is set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from headworks._settings import resolve_optional
from headworks.errors import UsageError

# When the prefetch queue is full, librdkafka pauses fetching for a second by default. A fast reader
# empties the queue much sooner, and would wait.
READ_AHEAD: Final = {"fetch.queue.backoff.ms": 20}


def client_properties(bootstrap: str) -> dict[str, Any]:
    """Return the properties of any client of the broker at `bootstrap`, by the settings.

    UsageError for a user without a password, or for certificates that cannot be read.
    """
    properties: dict[str, Any] = {"bootstrap.servers": bootstrap}
    username, authority = resolve_optional("username"), resolve_optional("tls_ca")
    if authority:
        if not Path(authority).is_file():
            raise UsageError(f"the file of CA certificates {authority} (tls_ca) is not there")
        properties["ssl.ca.location"] = authority
    if username:
        password = resolve_optional("password")
        if not password:
            raise UsageError(
                f"user {username!r} has no password", fix="set password, or $HEADWORKS_PASSWORD"
            )
        properties |= {
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": username,
            "sasl.password": password,
        }
    if username or authority:
        kind = "sasl" if username else ""
        properties["security.protocol"] = "_".join(filter(None, (kind, _transport(authority))))
    return properties


def _transport(authority: str | None) -> str:
    return "ssl" if authority else "plaintext"
