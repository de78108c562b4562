"""The server's certificate, for TLS 1.2 and newer."""

from __future__ import annotations

import ssl
from pathlib import Path

from headworks.errors import UsageError


def server_tls(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a server's context from PEM files; UsageError names the unusable file."""
    for path in (certificate, key):
        try:
            path.read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        raise UsageError(
            f"{certificate} and {key} are not a certificate and its key: {error.reason or error}",
            fix="pass PEM files: the certificate with its chain, and its key without a password",
        ) from None
    return context


def _no_password() -> str:
    """Return no password instead of prompting for one."""
    return ""
